"""The end of a server on SIGTERM: calls in progress may end, and new ones are refused."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest
from support.callers.asterisk import calling
from support.ports import unused_port
from support.resuming import conversation, words
from support.serving import LINE, PATIENCE, THREE_LINES, Server, Talk, begin_to_end, serving
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.client.call import connect as call_of
from rejoinder.agent.client.events import Reconnected, ReplyDone
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS
from rejoinder.agent.wires.departure import LAST_WORDS_SECONDS

pytestmark = pytest.mark.server
ENDING = "the server is shutting down"
REASON = f"{ENDING}: call again in a moment"
GOODBYE = "We have to end this call."
KEY = "a-key-of-this-test"
WITH_KEY = {"Authorization": f"Bearer {KEY}"}


def refused(server: Server, path: str, body: dict[str, object] | None = None) -> tuple[int, str, str]:
    """Return the status, the wait and the body of a request that fails."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(server.http + path, data, {"Content-Type": "application/json"})
    with pytest.raises(HTTPError) as error:
        urllib.request.urlopen(request, timeout=PATIENCE)
    with error.value as answer:
        return answer.status or 0, answer.headers.get("Retry-After", ""), answer.read().decode()


def test_calls_in_progress_end_by_themselves_and_new_ones_are_refused(tmp_path: Path) -> None:
    asked = {"model": "default", "messages": [{"role": "user", "content": "Hello"}]}
    with serving(tmp_path, llm=THREE_LINES, drain_s="60") as server:
        with Talk(server) as talk:
            begin_to_end(server)
            status, _, body = refused(server, "/readyz")
            assert (status, json.loads(body)["status"]) == (503, REASON)
            assert server.get("/healthz")["sessions"] == 1
            with pytest.raises(InvalidStatus) as error, Talk(server):
                pass
            answer = error.value.response
            assert (answer.status_code, answer.body) == (503, f"{REASON}\n".encode())
            assert answer.headers["Retry-After"] == str(BUSY_SECONDS)
            status, wait, body = refused(server, "/v1/chat/completions", asked)
            assert (status, wait) == (503, str(BUSY_SECONDS)) and REASON in body
            assert talk.turn()["status"] == "completed"
        assert server.process.wait(PATIENCE) == 0
    assert "drained: all calls have ended" in server.log.read_text()


def test_lost_socket_comes_back_to_a_server_that_drains(tmp_path: Path) -> None:
    with serving(tmp_path, drain_s="60") as server:
        with Talk(server) as talk:
            query = f"&conversation_id={conversation(talk)}"
            talk.turn()
            begin_to_end(server)
            talk.cut()
            with Talk(server, query=query) as again:
                again.until("rejoinder.resumed")
                assert again.turn()["status"] == "completed"
        assert server.process.wait(PATIENCE) == 0


def test_new_calls_are_sent_to_another_server(tmp_path: Path) -> None:
    for name in ("draining", "other"):
        (tmp_path / name).mkdir()
    keys = {"api_keys": hashed(KEY)}
    with serving(tmp_path / "other", **keys) as other:
        there = f"ws://127.0.0.1:{other.port}"
        with serving(tmp_path / "draining", drain_s="60", drain_url=there, **keys) as server:
            with Talk(server, additional_headers=WITH_KEY) as talk:
                begin_to_end(server)
                with pytest.raises(InvalidStatus) as error:
                    asyncio.run(_handshake(server, "?model=default"))
                answer = error.value.response
                assert (answer.status_code, answer.headers["Location"]) == (
                    307,
                    f"{there}/v1/realtime?model=default",
                )
                assert answer.body == f"{ENDING}: call {there}\n".encode()
                asyncio.run(_called(server))
                other.wait_idle()
                page = {"Origin": server.http, **WITH_KEY}
                with (
                    server.call(additional_headers=page) as socket,
                    pytest.raises(ConnectionClosed) as closed,
                ):
                    socket.recv()
                assert closed.value.rcvd
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, f"{ENDING}: call {there}")
                assert talk.turn()["status"] == "completed"


async def _handshake(server: Server, query: str) -> None:
    """Connect without following redirects."""

    class Once(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    url = f"ws://127.0.0.1:{server.port}/v1/realtime{query}"
    async with Once(url, proxy=None, additional_headers=WITH_KEY):
        pass


async def _called(server: Server) -> None:
    """Call by our client, which follows redirects with its key, and get an answer."""
    async with call_of(f"ws://127.0.0.1:{server.port}", key=KEY) as call, asyncio.timeout(PATIENCE):
        await call.add_text("Hello.")
        await call.respond()
        async for event in call:
            if isinstance(event, ReplyDone):
                assert event.status == "completed"
                assert call._connection._socket
                call._connection._socket.transport.abort()
            if isinstance(event, Reconnected):
                assert event.resumed, "it comes back to the server that took the call"
                return


@pytest.mark.parametrize("llm", [THREE_LINES, "scripted:llm"])
def test_calls_that_go_on_hear_a_goodbye(llm: str, tmp_path: Path) -> None:
    """In mid-reply, and while both sides are silent."""
    with serving(tmp_path, llm=llm, drain_s="0.3", drain_goodbye=GOODBYE) as server:
        with Talk(server) as talk:
            if llm == THREE_LINES:
                talk.speak()
                talk.until("response.output_audio.delta")
            begin_to_end(server)
            talk.read_to_end()
            assert (talk.socket.close_code, talk.socket.close_reason) == (1012, ENDING)
            assert words(talk.seen).endswith(GOODBYE)
            done = [event["response"]["status"] for event in talk.seen if event["type"] == "response.done"]
            assert done == ["cancelled", "completed"][-len(done) :] and len(done) == 1 + (llm == THREE_LINES)
        assert server.process.wait(PATIENCE) == 0
    assert "calls that did not end in 0.3 s: 1" in server.log.read_text()


def test_without_a_goodbye_they_end_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, llm=THREE_LINES, drain_s="0.3", drain_goodbye="") as server:
        with Talk(server) as talk:
            talk.speak()
            talk.until("response.output_audio.delta")
            begin_to_end(server)
            talk.read_to_end()
            assert talk.socket.close_code == 1012
            assert THREE_LINES.partition("|")[2].startswith(words(talk.seen).strip())
        assert server.process.wait(PATIENCE) == 0


def test_client_that_is_away_holds_up_no_goodbye(tmp_path: Path) -> None:
    with serving(tmp_path, llm=THREE_LINES, drain_s="0.3", drain_goodbye=GOODBYE) as server:
        with Talk(server) as talk:
            talk.speak()
            talk.until("response.output_audio.delta")
            talk.cut()
            begin_to_end(server)
            began = time.monotonic()
        assert server.process.wait(PATIENCE) == 0 and time.monotonic() - began < LAST_WORDS_SECONDS


@pytest.mark.parametrize(
    "signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT,)]
)
def test_a_second_signal_and_sigint_end_at_once(signals: tuple[signal.Signals, ...], tmp_path: Path) -> None:
    with serving(tmp_path, llm=THREE_LINES, drain_s="3600") as server:
        with Talk(server) as talk:
            talk.speak()
            talk.until("response.output_audio.delta")
            for number in signals[:-1]:
                begin_to_end(server, number)
            server.process.send_signal(signals[-1])
            talk.read_to_end()
            assert talk.socket.close_code == 1012
        assert server.process.wait(PATIENCE) == 0


def test_text_request_in_progress_is_answered(tmp_path: Path) -> None:
    asked = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with serving(tmp_path, llm="scripted:llm|" + LINE * 60, drain_s="60") as server:
        request = urllib.request.Request(
            server.http + "/v1/chat/completions",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as stream:
            stream.readline()
            begin_to_end(server)
            assert stream.read().strip().endswith(b"data: [DONE]")
        assert server.process.wait(PATIENCE) == 0


def test_page_is_accepted_so_that_it_gets_the_reason(tmp_path: Path) -> None:
    with serving(tmp_path, drain_s="60") as server:
        with Talk(server):
            begin_to_end(server)
            with Talk(server, greeted=False, origin=server.http) as page:
                page.read_to_end()
                assert (page.socket.close_code, page.socket.close_reason) == (1013, REASON)
        assert server.process.wait(PATIENCE) == 0


SLOW_AGENT = """
import asyncio
from pathlib import Path
from rejoinder import Agent

agent = Agent("You are brief.")

@agent.on_call
async def decide(call):
    Path("asked").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
"""


def test_call_that_is_about_to_begin_is_not_dropped(tmp_path: Path) -> None:
    """Its handshake was accepted before the signal, and the agent's hook has not decided yet."""
    (tmp_path / "desk.py").write_text(SLOW_AGENT)
    with serving(tmp_path, agent="desk.py", drain_s="60") as server:
        with Talk(server, greeted=False) as talk:
            deadline = time.monotonic() + PATIENCE
            while not (tmp_path / "asked").exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            begin_to_end(server)
            (tmp_path / "go").touch()
            talk.until("conversation.created")
            assert talk.turn()["status"] == "completed"
        assert server.process.wait(PATIENCE) == 0


def test_asterisk_and_devices_hear_the_goodbye(tmp_path: Path) -> None:
    port = unused_port()

    async def call(server: Server) -> None:
        url = f"ws://127.0.0.1:{server.port}/v1/pcm"
        async with calling(port) as asterisk, connect(url, proxy=None) as device:
            asterisk.loud(0.6)
            await asterisk.until(lambda: asterisk.seconds_heard > 0.5)
            before = asterisk.seconds_heard
            await asyncio.to_thread(begin_to_end, server)
            await asterisk.until(lambda: asterisk.hung_up)
            assert loud_seconds(asterisk.ear) > 0.5 and asterisk.seconds_heard > before
            heard = bytearray()
            with pytest.raises(ConnectionClosed):
                while True:
                    message = await device.recv()
                    heard += message if isinstance(message, bytes) else b""
            assert device.close_code == 1012 and loud_seconds(heard) > 0.5

    with serving(tmp_path, drain_s="0.3", drain_goodbye=GOODBYE, audiosocket_port=str(port)) as server:
        asyncio.run(call(server))
        assert server.process.wait(PATIENCE) == 0


def loud_seconds(pcm: bytearray) -> float:
    """Return how much of 16-bit audio at 8 or 16 kHz is not silence, in seconds at 16 kHz."""
    samples = np.frombuffer(bytes(pcm[: len(pcm) // 2 * 2]), "<i2")
    return float(np.count_nonzero(np.abs(samples) > 100)) / 16_000
