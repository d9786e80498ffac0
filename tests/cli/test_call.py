"""``rejoinder call``: the request that each carrier gets, and mistakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.servers.carrier_accounts import (
    ACCOUNT,
    FOR_ASTERISK,
    FOR_PLIVO,
    FOR_TELNYX,
    FOR_TWILIO,
    FOR_VONAGE,
    told,
)
from support.servers.carrier_rest import CarrierRest, carrier_rest
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.config import ConfigError, load

WHOM, STREAM = "+49301234567", "wss://agent.example.com/v1/phone"
COMMON = {"public_url": "https://agent.example.com/", "phone_number": "+49401234"}
TWIML = (
    f'<Response><Connect><Stream url="{STREAM}"><Parameter name="order" value="4711" /></Stream></Connect>'
    "</Response>"
)
SOCKET = {
    "type": "websocket",
    "uri": STREAM,
    "content-type": "audio/l16;rate=16000",
    "headers": {"order": "4711"},
}


@contextmanager
def served(rest: CarrierRest) -> Iterator[None]:
    """Serve in a thread: the command has a loop of its own."""
    ready, done = threading.Event(), threading.Event()

    async def hold() -> None:
        async with carrier_rest(rest):
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        done.set()
        thread.join()


def command(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], *arguments: str) -> tuple[int, str]:
    for seconds in ("CARRIER_ANSWER_S", "ACTION_S"):  # a busy machine may need more
        monkeypatch.setattr(f"rejoinder.agent.wires.phone.control.client.{seconds}", 60.0)
    for name, value in settings.items():
        monkeypatch.setenv(f"REJOINDER_{name.upper()}", value)
    result = CliRunner().invoke(app, ["call", *arguments])
    return result.exit_code, result.output


CALLS: list[tuple[Any, str, dict[str, str], list[str], tuple[str, str, dict[str, Any]], str]] = [
    (
        FOR_TWILIO,
        "twilio",
        {"twilio_account_sid": ACCOUNT},
        ["--parameter", "order=4711"],
        (
            "POST",
            f"/2010-04-01/Accounts/{ACCOUNT}/Calls.json",
            {"To": WHOM, "From": "+49401234", "Twiml": TWIML},
        ),
        "CA" + "f" * 32,
    ),
    (
        FOR_TELNYX,
        "telnyx",
        {"telnyx_connection_id": "7"},
        [],
        (
            "POST",
            "/v2/calls",
            {
                "to": WHOM,
                "from": "+49401234",
                "connection_id": "7",
                "stream_url": STREAM,
                "stream_track": "inbound_track",
                "stream_bidirectional_mode": "rtp",
            },
        ),
        "v2:new",
    ),
    (
        FOR_PLIVO,
        "plivo",
        {"plivo_auth_id": "MAXXXXXXXXXXXXXXXXXX"},
        [],
        (
            "POST",
            "/v1/Account/MAXXXXXXXXXXXXXXXXXX/Call/",
            {
                "from": "49401234",
                "to": "49301234567",
                "answer_url": "https://agent.example.com/v1/phone/plivo",
                "answer_method": "GET",
            },
        ),
        "9834029e-58b6-11e1-b8b7-a5bd0e4e126f",
    ),
    (
        FOR_VONAGE,
        "vonage",
        {},
        ["--parameter", "order=4711"],
        (
            "POST",
            "/v1/calls",
            {
                "to": [{"type": "phone", "number": "49301234567"}],
                "from": {"type": "phone", "number": "49401234"},
                "ncco": [{"action": "connect", "endpoint": [SOCKET]}],
            },
        ),
        "aaaaaaaa-bbbb-cccc-dddd-0123456789ab",
    ),
    (
        FOR_ASTERISK,
        "asterisk",
        {"ari_endpoint": "PJSIP/{number}@trunk"},
        ["--parameter", "order=4711, two"],
        (
            "POST",
            "/ari/channels",
            {
                "endpoint": f"PJSIP/{WHOM}@trunk",
                "extension": "602",
                "context": "rejoinder",
                "priority": 1,
                "callerId": "+49401234",
                "variables": {"REJOINDER": "called=%2B49301234567,order=4711%2C%20two"},
            },
        ),
        "1699.12",
    ),
]


@pytest.mark.parametrize("at", range(len(CALLS)), ids=lambda at: CALLS[at][1])
def test_carrier_calls(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (make, _, setting, flags), via, more, arguments, expected, id = CALLS[at]
    rest = make()
    with served(rest):
        settings = {**COMMON, **flags, **more, setting: rest.url, "public_url": COMMON["public_url"]}
        code, output = command(monkeypatch, settings, WHOM, "--via", via, *arguments)
    assert code == 0, output
    [(method, path, body)] = told(rest.seen)
    body.pop("command_id", None)
    assert (method, path, body) == expected
    assert output.strip() == f"{via} calls {WHOM}: {id}"


@pytest.mark.parametrize(
    ("at", "field", "wanted"),
    [
        (0, "Twiml", '<Parameter name="amd" value="true" />'),
        (1, "stream_url", f"{STREAM}?amd=true"),
        (2, "answer_url", "/v1/phone/plivo?amd=true"),
        (3, "ncco", "'amd': 'true'"),
        (4, "variables", "called=%2B49301234567,amd=true"),
    ],
    ids=lambda at: CALLS[at][1] if isinstance(at, int) else "",
)
def test_detection_of_machines_is_a_parameter_of_the_call(
    at: int, field: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (make, _, setting, flags), via, more, *_ = CALLS[at]
    rest = make()
    with served(rest):
        settings = {**COMMON, **flags, **more, setting: rest.url, "public_url": COMMON["public_url"]}
        code, output = command(monkeypatch, settings, WHOM, "--via", via, "--detect-machine")
    assert code == 0, output
    assert wanted in str(rest.seen[0].body[field])


def test_lost_call_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    make, _, setting, flags = FOR_TWILIO
    rest = make()
    rest.failing = [502, 502]
    with served(rest):
        settings = {**COMMON, **flags, "twilio_account_sid": ACCOUNT, setting: rest.url}
        code, output = command(monkeypatch, settings, WHOM, "--via", "twilio")
    assert (code, len(rest.seen)) == (1, 1) and "Twilio refused it (HTTP 502)." in output


@pytest.mark.parametrize(
    ("settings", "arguments", "reason"),
    [
        ({}, [WHOM, "--via", "twilio"], "set phone_number"),
        ({"phone_number": "+49401234"}, [WHOM, "--via", "twilio"], "set public_url"),
        (COMMON, [WHOM, "--via", "twilio"], "set twilio_account_sid"),
        (COMMON, [WHOM, "--via", "vonage"], "set vonage_private_key"),
        ({"ari_user": "a", "ari_password": "p"}, [WHOM, "--via", "asterisk"], "set ari_url"),
        (COMMON, [WHOM, "--via", "plivo", "--parameter", "a=b"], "passes no parameters"),
        (COMMON, [WHOM, "--via", "pigeon"], "none of twilio"),
        (COMMON, ["030 1234567", "--via", "twilio"], "country code"),
    ],
)
def test_mistake_is_said(
    settings: dict[str, str], arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, output = command(monkeypatch, settings, *arguments)
    assert code == 2 and reason in output


def test_setting_of_a_carrier_that_is_wrong_is_said_and_a_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as error:
        load(
            {
                "twilio_account_sid": "AC1",
                "ari_url": "pbx",
                "phone_number": "me",
                "ari_endpoint": "PJSIP/trunk",
                "ari_agent": "602",
                "telnyx_api_key": ["s3cret"],
            }
        )
    assert len(str(error.value).splitlines()) == 6
    assert "has to be an account SID: AC, and 32 characters" in str(error.value)
    assert "'pbx' and has to be an address that begins with http" in str(error.value)
    assert "'me' and has to be a telephone number such as +49301234567" in str(error.value)
    assert "'PJSIP/trunk' and has to be what Asterisk dials, with {number}" in str(error.value)
    assert "'602' and has to be an extension and its context: 602@rejoinder" in str(error.value)
    assert "s3cret" not in str(error.value)
