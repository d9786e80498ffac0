"""Connections to /v1/phone that are no calls, or end with an error: each one gets the reason."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.callers.carriers import TelnyxSim, TwilioSim, VonageSim
from support.callers.phone import calling, served
from support.serving import PATIENCE, THREE_LINES, Server, Talk, run_command, serving
from websockets.asyncio.client import connect as call_here
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from rejoinder.agent.wires.phone import line as phone_line
from rejoinder.agent.wires.phone.line import signature

TOKEN = "12345"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=THREE_LINES) as running:
        yield running


def call(server: Server, **options: Any) -> ClientConnection:
    url = f"ws://127.0.0.1:{server.port}/v1/phone"
    return connect(url, proxy=None, ping_interval=None, compression=None, **options)


def closed(client: ClientConnection) -> tuple[int | None, str | None]:
    with pytest.raises(ConnectionClosed):
        while True:
            client.recv(timeout=PATIENCE)
    return client.close_code, client.close_reason


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (["hello"], "no JSON"),
        (["[" * 100_000], "no JSON"),
        (["[]"], "no JSON object with an event"),
        ([" " * 2**20], "262144 are the most"),
        ([TwilioSim().audio(bytes(320))[0]], "media before the start"),
        ([VonageSim().audio(bytes(640))[0]], "audio before the start"),
        (['{"event": "start", "start": {}}'], "none of Twilio, Telnyx, Plivo and Exotel"),
        ([*TwilioSim().start(), b"\x00"], "inside of JSON"),
        ([*TwilioSim().start(), "{"], "no JSON"),
        ([*TwilioSim().start(), '{"event": "media", "media": {"payload": "!"}}'], "no base64"),
        ([*TwilioSim().start(), '{"event": "media", "media": {"payload": 7.5}}'], "no base64"),
        ([*TwilioSim().start(), '{"event": "media"}'], "without media.payload"),
        ([*TelnyxSim().start(), '{"event": "dtmf"}'], "without dtmf.digit"),
        ([*VonageSim().start(), b"\x00"], "no pcm audio"),
        ([*VonageSim().start(), bytes(2**17)], "no pcm audio"),
    ],
)
def test_invalid_start_is_closed_with_a_reason(
    server: Server, frames: list[str | bytes], reason: str
) -> None:
    with call(server) as client:
        for frame in frames:
            client.send(frame)
        code, said = closed(client)
    assert code == 1008 and reason in (said or "")
    server.wait_idle()
    noted = [line for line in server.log.read_text().splitlines() if f": {said}" in line]
    assert noted and all("WARNING" in line for line in noted)


def test_end_of_the_stream_hangs_up(server: Server) -> None:
    sim = TwilioSim()
    with call(server) as client:
        for frame in [*sim.start(), str(sim.stop())]:
            client.send(frame)
        assert closed(client) == (1000, "the caller has hung up")
    server.wait_idle()


def test_clients_are_served_beside_a_thousand_silent_ones(server: Server) -> None:
    handshake = (
        b"GET /v1/phone HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    silent: list[socket.socket] = []
    try:
        for _ in range(1000):
            silent.append(socket.create_connection(("127.0.0.1", server.port)))
            silent[-1].sendall(handshake)
            assert b" 101 " in silent[-1].recv(4096)
        assert server.sessions() == 0, "a connection that has not said who it is takes no line"
        with Talk(server) as talk:
            assert talk.turn()["status"] == "completed"
        for client in silent:
            client.settimeout(PATIENCE)
            assert b"nothing has started within 10 s" in client.recv(4096)
    finally:
        for client in silent:
            client.close()


def test_only_twilio_may_call_where_its_token_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_TWILIO_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv("REJOINDER_PUBLIC_URL", "https://agent.example/bot/")
    with serving(tmp_path, llm=THREE_LINES) as server:
        url = "wss://agent.example/bot/v1/phone"
        wrong = [None, "", "x", signature("54321", url), signature(TOKEN, url + "/"), "\u00e9"]
        for said in wrong:
            given = {} if said is None else {"X-Twilio-Signature": said}
            with pytest.raises(InvalidStatus) as refusal:
                call(server, additional_headers=given)
            assert refusal.value.response.status_code == 403
            assert b"X-Twilio-Signature" in (refusal.value.response.body or b"")
        for right in (url, url.replace(".example", ".example:443")):
            with call(server, additional_headers={"X-Twilio-Signature": signature(TOKEN, right)}) as client:
                for frame in TwilioSim().start():
                    client.send(frame)
                client.send(str(TwilioSim().stop()))
                assert closed(client)[0] == 1000
    assert TOKEN not in server.log.read_text()


def test_token_is_not_printed(tmp_path: Path) -> None:
    said = run_command("serve", "--print-config", folder=tmp_path, REJOINDER_TWILIO_AUTH_TOKEN="s3cret")
    assert said.returncode == 0 and "twilio_auth_token" in said.stdout and "s3cret" not in said.stdout


def test_without_a_proxy_the_address_is_the_one_that_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_TWILIO_AUTH_TOKEN", TOKEN)
    with serving(tmp_path, llm=THREE_LINES) as server:
        signed = signature(TOKEN, f"wss://127.0.0.1:{server.port}/v1/phone")
        with call(server, additional_headers={"X-Twilio-Signature": signed}) as client:
            for frame in [*TwilioSim().start(), str(TwilioSim().stop())]:
                client.send(frame)
            assert closed(client)[0] == 1000


def test_caller_beyond_the_last_line_gets_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def hold() -> None:
        async with served(max_sessions=1) as (program, url), calling(url, TwilioSim()) as first:
            await first.until(lambda: len(program.calls) == 1)
            async with call_here(url, proxy=None) as second:
                for frame in TwilioSim().start():
                    await second.send(frame)
                await second.wait_closed()
                assert second.close_code == 1013
        assert "a call to /v1/phone was refused: all 1 lines are busy" in caplog.text

    asyncio.run(hold())


def test_call_ends_when_the_model_is_down(caplog: pytest.LogCaptureFixture) -> None:
    noise = np.random.default_rng(0).normal(0.0, 6000.0, 4800).astype("<i2").tobytes()

    async def hold() -> None:
        async with served(apology="") as (program, url):
            program.models.llm.fail_after = 0  # type: ignore[union-attr]
            with pytest.raises(ConnectionClosed) as ended:
                async with calling(url, TwilioSim()) as caller:
                    for _ in range(2):
                        caller.say(noise + bytes(32_000))
                    await caller.until(lambda: caller.socket.close_code is not None)
            closed = ended.value.rcvd
            assert closed is not None and closed.code == 1011
            assert closed.reason.startswith("2 replies in a row have failed, the last: ")
            assert f"2 turns: {closed.reason}" in caplog.text

    asyncio.run(hold())


def test_caller_who_waits_too_long_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phone_line, "START_MESSAGE_SECONDS", 0.2)

    async def hold() -> None:
        async with served() as (program, url):
            before = asyncio.all_tasks()
            async with call_here(url, proxy=None) as client:
                await client.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
                await client.wait_closed()
                assert "nothing has started" in client.close_reason
            async with asyncio.timeout(PATIENCE):
                while asyncio.all_tasks() - before:  # noqa: ASYNC110 - a task's end has no event
                    await asyncio.sleep(0.02)
            assert not program.calls

    asyncio.run(hold())
