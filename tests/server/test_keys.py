"""Access with API keys, and with short-lived client secrets for browsers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import openai
import pytest
from openai import AsyncOpenAI
from support.published import conforms
from support.serving import PATIENCE, Server, Talk, run_command, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rejoinder.agent.config import ConfigError, Settings, check_open
from rejoinder.agent.server import keys as keys_module
from rejoinder.agent.server.keys import (
    EXPIRED_SECONDS,
    PROTOCOL,
    Keys,
    hashed,
    new_key,
    presented,
)
from rejoinder.agent.server.operating.key_file import read_keys

FEW = 200
"""As many client secrets as are kept in these tests, instead of 10,000."""
KEY = "rj_the_key_of_this_test"


@pytest.mark.parametrize(
    ("header", "protocols", "key"),
    [
        (None, (), ""),
        ("Bearer abc", (), "abc"),
        ("bearer  abc ", ("realtime",), "abc"),
        ("Basic abc", ("realtime",), ""),
        ("Bearer", ("realtime", f"{PROTOCOL}abc", "openai-agents-sdk.0.20.0"), "abc"),
        (None, ("realtime", PROTOCOL), ""),
    ],
)
def test_key_is_read_from_header_or_subprotocol(
    header: str | None, protocols: tuple[str, ...], key: str
) -> None:
    assert presented(header, protocols) == key


def test_without_keys_every_client_may_call() -> None:
    keys = Keys([], lambda: 0.0)
    assert keys.is_key("") and keys.session("whatever") == {}


def test_secret_opens_calls_until_it_expires_and_mints_nothing() -> None:
    now = [1000.0]
    keys = Keys([hashed(KEY), hashed(new_key())], lambda: now[0])
    assert keys.session(KEY) == {} and keys.is_key(KEY)
    assert keys.session("") is None and keys.session(hashed(KEY)) is None, "a hash is no key"
    value, expires = keys.mint(60.0, {"instructions": "x"})
    assert value.startswith("ek_") and expires == 1060.0
    assert keys.session(value) == {"instructions": "x"} and not keys.is_key(value)
    now[0] = 1060.0
    assert keys.session(value) is None


def test_secrets_end_with_the_key_that_minted_them() -> None:
    other = new_key()
    keys = Keys([hashed(KEY), hashed(other)], lambda: 0.0)
    ending, _ = keys.mint(60.0, {}, KEY)
    staying, _ = keys.mint(60.0, {}, other)
    keys.replace([hashed(other)])
    assert keys.session(KEY) is None and keys.session(ending) is None
    assert keys.session(other) == {} and keys.session(staying) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{0}\n{1}:4:30\n", ["{0}", "{1}:4:30"]),
        ("# our keys\n\n  {0}   # of the page\n", ["{0}"]),
    ],
)
def test_keys_are_read_from_a_file(tmp_path: Path, text: str, found: list[str]) -> None:
    hashes = hashed(KEY), hashed(new_key())
    (tmp_path / "keys").write_text(text.format(*hashes))
    assert read_keys(tmp_path / "keys") == [one.format(*hashes) for one in found]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no key"),
        ("# none\n", "has no key"),
        (f"{hashed(KEY)}\n{KEY}\n", "line 2: write the hash"),
        (f"{hashed(KEY)} {hashed(KEY)}\n", "line 1: write the hash"),
        ("\udcff", "not text in UTF-8"),
    ],
)
def test_wrong_file_of_keys_is_refused_without_showing_a_key(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=reason) as wrong:
        read_keys(path)
    assert KEY not in str(wrong.value)


def test_keys_are_rotated_without_a_restart(tmp_path: Path) -> None:
    file, old, new = tmp_path / "keys", new_key(), new_key()
    file.write_text(f"{hashed(old)}\n{hashed(KEY)}\n")

    def status(key: str) -> int:
        head = {"Authorization": f"Bearer {key}"}
        try:
            url = urllib.request.Request(f"{server.http}/v1/models", headers=head)
            with urllib.request.urlopen(url, timeout=PATIENCE) as response:
                return int(response.status)
        except HTTPError as error:
            error.close()
            return error.code

    def read_again(text: str) -> None:
        before = server.log.read_text().count("API keys ")
        file.write_text(text)
        os.kill(server.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while server.log.read_text().count("API keys ") == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with serving(tmp_path, api_keys_file=str(file)) as server:
        assert (status(old), status(new), status("")) == (200, 401, 401)
        with Talk(server, additional_headers={"Authorization": f"Bearer {old}"}) as talk:
            read_again(f"{hashed(new)}\n{hashed(KEY)}\n")
            assert (status(old), status(new), status(KEY)) == (401, 200, 200)
            assert talk.turn()["status"] == "completed", "a call that has begun goes on"
            created = next(event for event in talk.seen if event["type"] == "conversation.created")
            query = f"&conversation_id={created['conversation']['id']}"
            with (
                pytest.raises(InvalidStatus) as refused,
                Talk(server, query=query, additional_headers={"Authorization": f"Bearer {old}"}),
            ):
                pass
            assert refused.value.response.status_code == 401, "nor is it resumed with a key that was removed"
        read_again("")
        assert (status(old), status(new), status("")) == (401, 200, 401), "an empty file opens nothing"
        assert "API keys not read again" in server.log.read_text()


def test_secrets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "MAX_SECRETS", FEW)
    keys = Keys([hashed(KEY)], lambda: 0.0)
    first, *_ = [keys.mint(60.0, {"n": number})[0] for number in range(FEW)]
    assert keys.session(first) == {"n": 0}
    last, _ = keys.mint(60.0, {})
    assert keys.session(first) is None and keys.session(last) == {}


@pytest.mark.parametrize(
    ("settings", "open_"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "::"}, False),
        ({"host": "0.0.0.0", "api_keys": " "}, False),
        ({"host": "0.0.0.0", "api_keys": hashed(KEY)}, True),
        ({"host": "0.0.0.0", "api_keys_file": "keys"}, True),
        ({"host": "0.0.0.0", "open_to_all": True}, True),
    ],
)
def test_other_machines_are_served_only_when_configured(settings: dict[str, Any], open_: bool) -> None:
    if open_:
        check_open(Settings(**settings))
        return
    with pytest.raises(ConfigError, match="open_to_all"):
        check_open(Settings(**settings))


def test_command_line_makes_keys_and_refuses_other_machines_by_default(tmp_path: Path) -> None:
    made = run_command("key", folder=tmp_path)
    key, setting = (line.split()[-1] for line in made.stdout.splitlines())
    assert setting.strip('"') == hashed(key)
    refused = run_command("serve", "--host", "0.0.0.0", folder=tmp_path)
    assert refused.returncode == 2 and "api_keys" in refused.stderr
    wrong = run_command("serve", "--print-config", folder=tmp_path, REJOINDER_API_KEYS=KEY)
    assert wrong.returncode == 2 and "REJOINDER_API_KEYS" in wrong.stderr, "a key is not its hash"
    assert "hashes of keys" in wrong.stderr and KEY not in wrong.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REJOINDER_API_KEYS", hashed(KEY))
        with serving(tmp_path_factory.mktemp("keys")) as server:
            yield server


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"additional_headers": {"Authorization": "Bearer other"}},
        {"subprotocols": ["realtime", f"{PROTOCOL}other"]},
    ],
)
def test_client_without_a_key_gets_a_reason(server: Server, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidStatus) as refused, server.call(**options):
        pass
    assert refused.value.response.status_code == 401
    assert b"API keys" in refused.value.response.body
    server.sessions()  # by then it is written
    log = server.log.read_text()
    assert "a call to /v1/realtime was refused: " in log and "handshake" not in log


@pytest.mark.parametrize("path", ["realtime", "phone", "pcm"])
def test_plain_request_to_a_socket_path_gets_426(server: Server, path: str) -> None:
    with pytest.raises(HTTPError) as refused:
        server.get(f"/v1/{path}")
    assert refused.value.code == 426 and f"/v1/{path} is a WebSocket" in refused.value.read().decode()
    refused.value.close()


def test_telephone_call_needs_the_key_too(server: Server) -> None:
    url = f"ws://127.0.0.1:{server.port}/v1/phone"
    with pytest.raises(InvalidStatus) as refused, connect(url, proxy=None):
        pass
    assert refused.value.response.status_code == 401
    with connect(url, proxy=None, additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
        socket.send("{}")  # no message of a carrier: the socket is accepted and then closed with an error
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=PATIENCE)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


def test_key_in_the_header_or_among_the_sub_protocols_opens_a_call(server: Server) -> None:
    with Talk(server, additional_headers={"Authorization": f"Bearer {KEY}"}) as talk:
        assert talk.socket.subprotocol is None
    offered = ["realtime", f"{PROTOCOL}{KEY}", "openai-agents-sdk.0.20.0"]
    with Talk(server, subprotocols=offered) as talk:
        assert talk.socket.subprotocol == "realtime"
        assert talk.turn()["status"] == "completed"
    server.wait_idle()


def test_secret_for_a_browser_brings_its_session_along(server: Server) -> None:
    async def mint(key: str, **session: Any) -> Any:
        async with AsyncOpenAI(api_key=key, base_url=f"{server.http}/v1", max_retries=0) as client:
            given: Any = {"type": "realtime", **session}
            expires: Any = {"anchor": "created_at", "seconds": 60}
            return await client.realtime.client_secrets.create(session=given, expires_after=expires)

    made = asyncio.run(mint(KEY, instructions="Be a parrot.", output_modalities=["text"]))
    assert made.value.startswith("ek_") and made.session.instructions == "Be a parrot."
    with Talk(server, greeted=False, subprotocols=["realtime", f"{PROTOCOL}{made.value}"]) as talk:
        created = talk.until("session.created")["session"]
        assert created["instructions"] == "Be a parrot." and created["output_modalities"] == ["text"]
        assert created["audio"]["input"]["turn_detection"]["interrupt_response"] is True
        talk.turn()
        assert "response.output_text.done" in [event["type"] for event in talk.seen]
        conforms(talk.seen)
    for key in ("other", made.value):
        with pytest.raises(openai.AuthenticationError, match="API keys"):
            asyncio.run(mint(key))
    with pytest.raises(openai.BadRequestError, match=r"session\.output_modalities"):
        asyncio.run(mint(KEY, output_modalities=["smell"]))
    server.wait_idle()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (json.dumps({"expires_after": {"seconds": 9}}).encode(), 400),
        (json.dumps({"session": {"type": "transcription"}}).encode(), 400),
        (b" " * 2**18, 413),
    ],
)
def test_invalid_secret_requests_are_refused(server: Server, body: bytes, status: int) -> None:
    url = f"{server.http}/v1/realtime/client_secrets"
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {KEY}"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == status and json.load(answer)["value"].startswith("ek_")
    except urllib.error.HTTPError as refused:
        with refused:
            assert refused.code == status
            assert set(json.load(refused)["error"]) == {"type", "code", "message", "param", "event_id"}


def requesting(
    server: Server, method: str, path: str, key: str = KEY, body: bytes | None = None
) -> HTTPError:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(server.http + path, body, headers, method=method)
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE)
    return refused.value


def test_expired_secrets_are_remembered_while_there_is_room() -> None:
    now = [0.0]
    keys = Keys([hashed(KEY)], lambda: now[0])
    first, _ = keys.mint(60.0, {})
    now[0] = 60.0
    keys.mint(60.0, {})
    assert "none was shown" in keys.wrong("") and "none of" in keys.wrong("ek_x")
    assert "expired" in keys.wrong(first) and keys.session(first) is None
    now[0] += EXPIRED_SECONDS
    keys.mint(60.0, {})
    assert "none of" in keys.wrong(first)


def test_expired_secrets_take_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "MAX_SECRETS", FEW)
    now = [0.0]
    keys = Keys([hashed(KEY)], lambda: now[0])
    long, _ = keys.mint(7200.0, {})
    for _ in range(FEW - 1):
        keys.mint(10.0, {})
    now[0] = 10.0
    last, _ = keys.mint(10.0, {})
    assert keys.session(long) == {} and keys.session(last) == {}


@pytest.mark.parametrize(
    ("key", "reason"), [("", "none was shown"), ("rj_other", "is none of this server's")]
)
def test_missing_and_wrong_keys_get_different_errors(server: Server, key: str, reason: str) -> None:
    options = {"additional_headers": {"Authorization": f"Bearer {key}"}} if key else {}
    with pytest.raises(InvalidStatus) as refused, server.call(**options):
        pass
    assert refused.value.response.status_code == 401 and reason.encode() in refused.value.response.body
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/realtime/client_secrets")):
        with requesting(server, method, path, key) as answer:
            assert answer.code == 401 and reason in json.load(answer)["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v1/audio/speech", 404, "/v1/audio/speech"),
        ("DELETE", "/v1/models", 405, "DELETE"),
        ("GET", "/v1/chat/completions", 405, "POST"),
    ],
)
def test_unknown_path_gets_an_error_in_openais_shape(
    server: Server, method: str, path: str, status: int, said: str
) -> None:
    with requesting(server, method, path) as answer:
        error = json.load(answer)["error"]
        assert answer.code == status and (status == 404 or answer.headers["Allow"])
        assert error["type"] == "invalid_request_error" and said in error["message"]
        assert set(error) == {"message", "type", "param", "code"}
    with requesting(server, "GET", "/elsewhere") as answer:
        assert answer.code == 404 and answer.read() == b"Not Found\n"


def test_field_of_a_secret_is_named_as_it_was_sent(server: Server) -> None:
    body = json.dumps({"expires_after": {"seconds": 9}}).encode()
    with requesting(server, "POST", "/v1/realtime/client_secrets", body=body) as answer:
        error = json.load(answer)["error"]
    assert error["param"] == "expires_after.seconds" and error["message"].startswith(
        "expires_after.seconds: "
    )


@pytest.mark.parametrize("path", ["/v1/realtimes", "/ws", "/page/ws", "/v1/models", "/"])
def test_unknown_socket_path_is_refused_with_a_list_of_paths(server: Server, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None):
        pass
    assert refused.value.response.status_code == 404
    said = (refused.value.response.body or b"").decode()
    assert f"no WebSocket at {path}, but at /v1/realtime, /v1/phone, /v1/pcm" in said
    server.sessions()  # by then it is written
    assert f"a call to {path} was refused: {said.strip()}" in server.log.read_text()


def test_clients_cannot_inject_log_lines(server: Server) -> None:
    with (
        pytest.raises(InvalidStatus),
        connect(f"ws://127.0.0.1:{server.port}/x%E2%80%A8forged%1B", proxy=None),
    ):
        pass
    server.sessions()
    assert "a call to /x?forged? was refused" in server.log.read_text()
