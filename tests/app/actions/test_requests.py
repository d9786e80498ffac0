"""Each action of each carrier, request by request: method, path, authorization and body."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
import soundfile
from support.callers.carriers import SIMS, TwilioSim
from support.servers.carrier_accounts import (
    ACCOUNT,
    CALL,
    CONTROL_ID,
    FOR_ASTERISK,
    FOR_PLIVO,
    FOR_TELNYX,
    FOR_TWILIO,
    FOR_VONAGE,
    MUSIC,
    PEER,
    PLIVO_ACCOUNT,
    PLIVO_CALL,
    SALES,
    UUID,
    signed,
    told,
)  # fmt: skip
from support.servers.carrier_rest import CarrierRest, Seen, asterisk, carrier_rest, twilio, vonage

from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.config import ConfigError, load
from rejoinder.agent.wires.phone.control.api import basic
from rejoinder.agent.wires.phone.control.control import PhoneControl
from rejoinder.agent.wires.phone.control.controls import Controls
from rejoinder.agent.wires.phone.control.telnyx import TelnyxApi
from rejoinder.agent.wires.phone.protocol import Phone, sniff
from rejoinder.models.scripted import ScriptedTts
from rejoinder.pipeline import Options

pytestmark = pytest.mark.server


def controlled(sim: TwilioSim, **flags: Any) -> tuple[PhoneControl, Controls]:
    """Return the control of a call that a carrier begins."""
    settings, _ = load({"phone_number": "+49401234", "hold_music_url": MUSIC, **flags})
    controls = Controls(settings)
    carrier = next(found for frame in sim.start() if (found := sniff(frame)))
    return controls.of(Phone(carrier, Options()), ScriptedTts()), controls


Act = Callable[[PhoneControl], Awaitable[None]]


async def asked(rest: CarrierRest, sim: TwilioSim, url: str, act: Act, **flags: Any) -> list[Seen]:
    """Carry out an action, and return the requests that followed."""
    async with carrier_rest(rest):
        control, controls = controlled(sim, **{url: rest.url}, **flags)
        try:
            await act(control)
        finally:
            await controls.aclose()
    return rest.seen


async def both(control: PhoneControl) -> None:
    await control.hold()
    await control.resume()


TELNYX = f"/v2/calls/{CONTROL_ID}/actions"
PLIVO = f"/v1/Account/{PLIVO_ACCOUNT}/Call/{PLIVO_CALL}/"
VONAGE = f"/v1/calls/{UUID}"
CHANNEL = f"/ari/channels/{PEER}"
MOVE = {"context": "people", "extension": "200", "priority": "1"}
BRIDGES = ("GET", "/ari/bridges", {})
TWILIO = f"/2010-04-01/Accounts/{ACCOUNT}/Calls/{CALL}.json"
DIAL = f"<Response><Dial><Number>{SALES}</Number></Dial></Response>"
VONAGE_DIAL = {
    "action": "connect",
    "endpoint": [{"type": "phone", "number": "4930123456"}],
    "from": "49401234",
}
VONAGE_MOVE = {"action": "transfer", "destination": {"type": "ncco", "ncco": [VONAGE_DIAL]}}
ACTIONS: list[tuple[Any, Act, list[tuple[str, str, dict[str, Any]]]]] = [
    (FOR_TWILIO, lambda control: control.hang_up(), [("POST", TWILIO, {"Status": "completed"})]),
    (FOR_TWILIO, lambda control: control.transfer(SALES), [("POST", TWILIO, {"Twiml": DIAL})]),
    (FOR_TWILIO, both, []),
    (FOR_TELNYX, lambda control: control.hang_up(), [("POST", f"{TELNYX}/hangup", {})]),
    (
        FOR_TELNYX,
        lambda control: control.transfer(SALES),
        [("POST", f"{TELNYX}/transfer", {"to": SALES, "timeout_secs": 25})],
    ),
    (
        FOR_TELNYX,
        lambda control: control.send_digits("42#"),
        [("POST", f"{TELNYX}/send_dtmf", {"digits": "42#"})],
    ),
    (
        FOR_TELNYX,
        both,
        [
            ("POST", f"{TELNYX}/playback_start", {"audio_url": MUSIC, "loop": "infinity"}),
            ("POST", f"{TELNYX}/playback_stop", {}),
        ],
    ),
    (FOR_PLIVO, lambda control: control.hang_up(), [("DELETE", PLIVO, {})]),
    (
        FOR_PLIVO,
        lambda control: control.send_digits("42#"),
        [("POST", f"{PLIVO}DTMF/", {"digits": "42#", "leg": "aleg"})],
    ),
    (
        FOR_PLIVO,
        both,
        [
            ("POST", f"{PLIVO}Play/", {"urls": MUSIC, "legs": "aleg", "loop": True}),
            ("DELETE", f"{PLIVO}Play/", {}),
        ],
    ),
    (FOR_VONAGE, lambda control: control.hang_up(), [("PUT", VONAGE, {"action": "hangup"})]),
    (FOR_VONAGE, lambda control: control.transfer(SALES), [("PUT", VONAGE, VONAGE_MOVE)]),
    (FOR_VONAGE, lambda control: control.send_digits("42#"), [("PUT", f"{VONAGE}/dtmf", {"digits": "42#"})]),
    (
        FOR_VONAGE,
        both,
        [
            ("PUT", f"{VONAGE}/stream", {"stream_url": [MUSIC], "loop": 0}),
            ("DELETE", f"{VONAGE}/stream", {}),
        ],
    ),
    (FOR_ASTERISK, lambda control: control.hang_up(), [BRIDGES, ("DELETE", CHANNEL, {})]),
    (
        FOR_ASTERISK,
        lambda control: control.transfer("200"),
        [
            BRIDGES,
            ("POST", f"{CHANNEL}/continue", {"context": "people", "extension": "200", "priority": "1"}),
        ],
    ),
    (
        FOR_ASTERISK,
        lambda control: control.send_digits("42#"),
        [BRIDGES, ("POST", f"{CHANNEL}/dtmf", {"dtmf": "42#"})],
    ),
    (FOR_ASTERISK, both, [BRIDGES, ("POST", f"{CHANNEL}/moh", {}), ("DELETE", f"{CHANNEL}/moh", {})]),
]


@pytest.mark.parametrize("case", range(len(ACTIONS)), ids=lambda at: f"{ACTIONS[at][0][1].name}-{at}")
def test_request(case: int) -> None:
    (make, sim, url, flags), act, expected = ACTIONS[case]
    seen = told(asyncio.run(asked(make(), sim(), url, act, **flags)))
    for _, _, body in seen:
        body.pop("command_id", None)
    assert seen == expected


@pytest.mark.parametrize("briefing", ["", "Ada asks for her order."])
def test_plivo_fetches_the_transfer(briefing: str) -> None:
    """Plivo takes no XML in a request: it gets an address that cannot be guessed."""

    async def hold() -> None:
        make, sim, url, flags = FOR_PLIVO
        rest = make()
        async with carrier_rest(rest):
            control, controls = controlled(sim(), **{url: rest.url}, **flags)
            await control.transfer(SALES, briefing)
            await controls.aclose()

        def fetched(address: str) -> str | None:
            base, _, name = address.rpartition("/")
            assert base == "https://agent.example.com/v1/phone/documents" and len(name) == 32
            return controls.documents.get(name, 0.0)

        [(method, path, body)] = told(rest.seen)
        assert (method, path, body["legs"], body["aleg_method"]) == ("POST", PLIVO, "aleg", "GET")
        document = fetched(body["aleg_url"])
        if not briefing:
            assert document == f'<Response><Dial timeout="25"><Number>{SALES}</Number></Dial></Response>'
            return
        assert document is not None
        whisper = document.partition('confirmSound="')[2].partition('"')[0]
        assert fetched(whisper) == f"<Response><Speak>{briefing}</Speak></Response>"

    asyncio.run(hold())


def test_line_that_cannot_announce_says_so() -> None:
    make, sim, url, flags = FOR_ASTERISK
    with pytest.raises(ToolError, match=r"This line cannot announce a transfer\. Transfer without"):
        asyncio.run(asked(make(), sim(), url, lambda control: control.transfer(SALES, "Hello."), **flags))


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_line_without_credentials_can_only_end(sim: type[TwilioSim]) -> None:
    async def act() -> None:
        control, controls = controlled(sim())
        await control.hang_up()
        await both(control)
        assert control.tones, "digits go as tones"
        with pytest.raises(ToolError, match="This line cannot transfer calls"):
            await control.transfer(SALES)
        await controls.aclose()

    asyncio.run(act())


def test_telnyx_fetches_the_briefing_in_the_voice_of_the_agent() -> None:
    make, sim, url, flags = FOR_TELNYX

    async def hold() -> None:
        rest = make()
        async with carrier_rest(rest):
            here = "https://agent.example.com"
            control, controls = controlled(sim(), **{url: rest.url}, **flags, public_url=here)
            await control.transfer(SALES, "Ada asks.")
            await controls.aclose()
        [(_, path, body)] = told(rest.seen)
        assert path == f"{TELNYX}/transfer" and body["to"] == SALES
        document = controls.documents.get(body["audio_url"].removeprefix(f"{here}/v1/phone/documents/"), 0.0)
        assert isinstance(document, bytes)
        pcm, rate = soundfile.read(io.BytesIO(document), dtype="int16")
        said = [chunk async for chunk in ScriptedTts().speak("Ada asks.")]
        assert pcm.tobytes() == b"".join(chunk.pcm for chunk in said) and rate == said[0].rate

    asyncio.run(hold())


def test_telnyx_cannot_announce_without_a_public_address() -> None:
    make, sim, url, flags = FOR_TELNYX
    with pytest.raises(ToolError, match=r"This line cannot announce a transfer\..*public_url"):
        asyncio.run(asked(make(), sim(), url, lambda control: control.transfer(SALES, "Hello."), **flags))


# --- a third person ---------------------------------------------------------------------------------


def warm(states: list[str]) -> tuple[list[tuple[str, str, dict[str, Any]]], str]:
    """Transfer a call of Twilio with a briefing; return the requests, and the error if there was one."""
    _, sim, url, flags = FOR_TWILIO
    rest = twilio(basic(ACCOUNT, "t"), ACCOUNT, states)

    async def act(control: PhoneControl) -> None:
        await control.transfer(SALES, "Ada & Bob ask.")

    try:
        asyncio.run(asked(rest, sim(), url, act, **flags))
    except ToolError as error:
        return told(rest.seen), str(error)
    return told(rest.seen), ""


def conference(document: str) -> str:
    return document.partition('<Conference beep="false" endConferenceOnExit="true">')[2].partition("<")[0]


def test_warm_transfer_tells_the_person_and_then_brings_the_caller_in() -> None:
    requests, error = warm(["queued", "ringing", "in-progress"])
    calls = TWILIO.rpartition("/")[0]
    third = f"{calls}/CA{'f' * 32}.json"
    assert not error
    assert [one[:2] for one in requests] == [
        ("POST", f"{calls}.json"),
        *3 * [("GET", third)],
        ("POST", TWILIO),
    ]
    made = requests[0][2]
    assert (made["To"], made["From"], made["Timeout"]) == (SALES, "+49401234", "25")
    assert made["Twiml"].startswith("<Response><Say>Ada &amp; Bob ask.</Say><Dial><Conference ")
    room = conference(made["Twiml"])
    assert len(room) == 25 and conference(requests[-1][2]["Twiml"]) == room
    assert "<Say>" not in requests[-1][2]["Twiml"], "the caller does not hear it"


@pytest.mark.parametrize("state", ["busy", "no-answer", "failed", "canceled", "completed"])
def test_caller_stays_with_the_agent_where_nobody_answers(state: str) -> None:
    requests, error = warm(["ringing", state])
    assert error.startswith("Nobody answered there. The caller is still with you")
    assert requests[-1] == ("POST", TWILIO.replace(CALL, "CA" + "f" * 32), {"Status": "completed"})
    assert TWILIO not in [path for _, path, _ in requests], "the caller's own call is not touched"


def test_cancelled_transfer_ends_the_call_to_the_third_person() -> None:
    _, sim, url, flags = FOR_TWILIO
    rest = twilio(basic(ACCOUNT, "t"), ACCOUNT, ["ringing"] * 10)

    async def act(control: PhoneControl) -> None:
        transferring = asyncio.create_task(control.transfer(SALES, "Hello."))
        while len(rest.seen) < 2:  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.02)
        transferring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transferring

    requests = told(asyncio.run(asked(rest, sim(), url, act, **flags)))
    assert requests[-1] == ("POST", TWILIO.replace(CALL, "CA" + "f" * 32), {"Status": "completed"})


def test_vonage_announces_in_a_conversation() -> None:
    rest = vonage(signed, UUID, ["started", "answered"])
    _, _, url, flags = FOR_VONAGE
    requests = told(
        asyncio.run(
            asked(rest, FOR_VONAGE[1](), url, lambda control: control.transfer(SALES, "Hello."), **flags)
        )
    )
    assert [one[0] for one in requests] == ["POST", "GET", "GET", "PUT"]
    talk, room = requests[0][2]["ncco"]
    assert talk == {"action": "talk", "text": "Hello."} and room["action"] == "conversation"
    assert requests[-1][1] == VONAGE and requests[-1][2]["destination"]["ncco"] == [room]


# --- faults -------------------------------------------------------------------------------------------


def test_requests_are_repeated_where_that_is_safe(caplog: pytest.LogCaptureFixture) -> None:
    make, sim, url, flags = FOR_TWILIO
    for failing in ([503], [429, 502]):
        rest = make()
        rest.failing = list(failing)
        asyncio.run(asked(rest, sim(), url, lambda control: control.hang_up(), **flags))
        assert len(rest.seen) == len(failing) + 1
    _, _, url, flags = FOR_VONAGE
    rest = vonage(signed, UUID)
    rest.failing = [502]
    with pytest.raises(ToolError, match=r"Vonage refused it \(HTTP 502\)\."):
        asyncio.run(asked(rest, FOR_VONAGE[1](), url, lambda control: control.send_digits("1"), **flags))
    assert len(rest.seen) == 1, "pressed twice, they are other digits"


def test_refusal_is_told_and_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    make, sim, url, flags = FOR_TWILIO
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ToolError, match=r"^Twilio refused it \(HTTP 401\)\.$"),
    ):
        act: Act = lambda control: control.transfer(SALES)  # noqa: E731
        asyncio.run(asked(make(), sim(), url, act, **{**flags, "twilio_auth_token": "wrong-secret"}))
    assert "Twilio: POST http" in caplog.text and "HTTP 401" in caplog.text and "Authenticate" in caplog.text
    assert "wrong-secret" not in caplog.text and basic(ACCOUNT, "wrong-secret") not in caplog.text
    assert "Authorization" not in caplog.text


def test_carrier_that_is_not_there_is_told() -> None:
    async def act() -> None:
        control, controls = controlled(TwilioSim(), twilio_auth_token="t", twilio_url="http://127.0.0.1:9")
        with pytest.raises(ToolError, match=r"^Twilio did not answer\."):
            await control.hang_up()
        await controls.aclose()

    asyncio.run(act())


def test_channel_that_is_alone_cannot_be_controlled() -> None:
    _, sim, url, flags = FOR_ASTERISK
    rest = asterisk(basic("ari", "p"), "another", PEER)
    with pytest.raises(ToolError, match="This line cannot be controlled"):
        asyncio.run(asked(rest, sim(), url, lambda control: control.hang_up(), **flags))


@pytest.mark.parametrize(
    "key", ["/no/such/file.pem", "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"]
)
def test_private_key_that_is_none_is_a_mistake_in_the_configuration(key: str) -> None:
    settings, _ = load({"vonage_private_key": key})
    with pytest.raises(ConfigError, match="vonage_private_key: "):
        Controls(settings)


@pytest.mark.parametrize(
    ("id_", "path"),
    [
        ("v3:a/b?c#d", "/v2/calls/v3%3Aa%2Fb%3Fc%23d/actions/hangup"),
        ("..", "/v2/calls/-/actions/hangup"),
        ("../..", "/v2/calls/..%2F../actions/hangup"),
        ("%2e%2e", "/v2/calls/%252e%252e/actions/hangup"),
    ],
)
def test_identifier_of_a_call_stays_one_segment_of_the_path(id_: str, path: str) -> None:
    """It comes from whoever opens /v1/phone; the request carries the operator's credentials."""
    request = TelnyxApi("https://api.telnyx.com", "key", id_, "").hang_up()
    assert httpx2.URL(request.url).raw_path == path.encode()
