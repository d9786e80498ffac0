"""Our own client against the real server: turns, answers, what goes wrong, and sockets that are lost."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browsing import wire_to
from support.callers.openai_client import REAL, STORY, question
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.servers.tools import WEATHER, ChatServer
from support.serving import PATIENCE, Server, serving
from websockets.asyncio.server import ServerConnection, serve

from rejoinder.agent.client import socket as client_socket
from rejoinder.agent.client.audio import CLIENT_RATE, mono
from rejoinder.agent.client.call import Call, connect
from rejoinder.agent.client.events import (
    AgentAudio,
    AgentDelta,
    AgentSaid,
    CallEvent,
    Failed,
    Other,
    Reconnected,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    ToolCalled,
    UserSaid,
    read,
)
from rejoinder.agent.client.socket import CallLost, may_come_back, moved, realtime_url, redirected, returning
from rejoinder.agent.server.keys import hashed

LONG = " ".join(f"This is sentence number {number} of a long answer." for number in range(1, 30))
KEY = "rj_the_key_of_this_test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=f"scripted:llm|{LONG}") as running:
        yield running


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps no conversation whose socket is lost."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("REJOINDER_RESUME_S", "0")
            running = stack.enter_context(serving(tmp_path_factory.mktemp("forgetful")))
        yield running


def address(server: Server) -> str:
    return f"ws://127.0.0.1:{server.port}"


async def until(call: Call, wanted: type | Callable[[CallEvent], bool]) -> list[CallEvent]:
    """Return what happens up to an event of a type, or one that is wanted."""
    seen: list[CallEvent] = []
    async with asyncio.timeout(2 * PATIENCE):
        async for event in call:
            seen.append(event)
            if isinstance(event, wanted) if isinstance(wanted, type) else wanted(event):
                return seen
    raise AssertionError(f"the call ended: {call.over}; {seen}")


def noise(seconds: float, rate: int) -> np.ndarray:
    """Return what the scripted VAD takes for speech."""
    return np.random.default_rng(0).normal(0.0, 0.2, int(seconds * rate)).astype(np.float32)


async def speak(call: Call, rate: int = CLIENT_RATE) -> None:
    """Say something and fall silent, in one go."""
    await call.send_audio(noise(0.6, rate), rate)
    await call.send_audio(np.zeros(int(1.2 * rate), np.float32), rate)


def leaving_no_task(converse: Coroutine[Any, Any, None]) -> None:
    """Run a conversation, behind which nothing may be left."""

    async def main() -> None:
        await converse
        await asyncio.sleep(0)  # the library's own task, which was cancelled, has to see it
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


# --- decisions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("ws://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/realtime"),
        ("http://[::1]:8080/", "ws://[::1]:8080/v1/realtime"),
        ("https://agent.example.com", "wss://agent.example.com/v1/realtime"),
        ("wss://h/openai/realtime?model=m", "wss://h/openai/realtime?model=m"),
        ("ws://h?hold=true", "ws://h/v1/realtime?hold=true"),
    ],
)
def test_the_address_of_a_server_is_enough(given: str, url: str) -> None:
    assert realtime_url(given) == url


@pytest.mark.parametrize("given", ["", "127.0.0.1:8080", "localhost", "ftp://h/", "ws://"])
def test_what_is_no_address_is_said_to_be_none(given: str) -> None:
    with pytest.raises(ValueError, match="no address of a server"):
        realtime_url(given)


@pytest.mark.parametrize(
    ("url", "location", "place"),
    [
        ("ws://a:1/v1/realtime?model=m", "ws://b:2/v1/realtime?model=m", "ws://b:2/v1/realtime?model=m"),
        ("ws://a/v1/realtime", "https://b/v1/realtime", "wss://b/v1/realtime"),
        ("wss://a/v1/realtime", "/v2/realtime", "wss://a/v2/realtime"),
        ("wss://a/v1/realtime", "ws://b/v1/realtime", ""),
        ("ws://a/v1/realtime", "ftp://b/v1/realtime", ""),
    ],
)
def test_a_redirect_is_followed_unless_the_key_would_go_over_an_open_line(
    url: str, location: str, place: str
) -> None:
    assert redirected(url, location) == place


def test_a_redirected_call_stays_at_its_server() -> None:
    assert moved("ws://a/v1/realtime?model=m", "wss://b:2/v1/realtime?model=m&conversation_id=c") == (
        "wss://b:2/v1/realtime?model=m"
    )


def test_a_returning_client_names_the_conversation_and_the_last_event() -> None:
    assert returning("ws://h/v1/realtime?model=m", "", "") == "ws://h/v1/realtime?model=m"
    url = returning("ws://h/v1/realtime?hold=true", "conv_1", "event_2")
    assert url == "ws://h/v1/realtime?hold=true&conversation_id=conv_1&last_event_id=event_2"


@pytest.mark.parametrize(
    ("message", "code", "at_first", "later"),
    [
        ("connection refused", 0, False, True),
        ("the models are still loading: try again", 1013, True, True),
        ("all 4 lines are busy", 1013, False, True),
        ("no call for 300 s", 1000, False, False),
        ("not UTF-8", 1007, False, False),
        ("keepalive", 1011, False, True),
        ("restart", 1012, False, True),
        ("unauthorized", 401, False, False),
        ("too many", 429, False, True),
        ("bad gateway", 502, False, True),
    ],
)
def test_what_is_tried_again(message: str, code: int, at_first: bool, later: bool) -> None:
    assert may_come_back(CallLost(message, code), False) is at_first
    assert may_come_back(CallLost(message, code), True) is later
    assert not may_come_back(ValueError(), True)


def test_audio_is_mono_and_sixteen_bits() -> None:
    floats = np.array([0.0, 0.5, -2.0], np.float64)
    assert mono(floats) == np.array([0, 16383, -32767], "<i2").tobytes()
    assert mono(np.array([[1], [2]], np.int16)) == bytes([1, 0, 2, 0])
    assert mono(bytearray(b"ab")) == b"ab"
    with pytest.raises(ValueError, match="not mono"):
        mono(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="int64"):
        mono(np.zeros(5, np.int64))


def test_events_have_types_and_the_rest_is_as_it_came() -> None:
    place = {"response_id": "r", "item_id": "i"}
    assert read({"type": "response.audio_transcript.delta", **place, "delta": "Hi"}) == AgentDelta(
        "r", "i", "Hi"
    )
    assert read({"type": "response.text.done", **place, "text": "Hi."}) == AgentSaid("r", "i", "Hi.")
    audio = read({"type": "response.audio.delta", **place, "delta": base64.b64encode(b"ab").decode()})
    assert audio == AgentAudio("r", "i", b"ab") and audio.raw["item_id"] == "i"
    assert read({"type": "error", "error": {"message": "no", "code": None}}) == Failed("no", "")
    other = read({"type": "rate_limits.updated", "limits": []})
    assert other == Other("rate_limits.updated") and other.raw["limits"] == []


# --- conversations --------------------------------------------------------------------------------------


@pytest.mark.weights
def test_a_spoken_turn_and_an_interruption(tmp_path: Path) -> None:
    pcm = question() + bytes(2 * CLIENT_RATE * 2)

    async def say(call: Call) -> None:
        for first in range(0, len(pcm), 1920):
            await call.send_audio(pcm[first : first + 1920])
            await asyncio.sleep(0.04)

    async def converse() -> None:
        async with connect(address(server)) as call, asyncio.TaskGroup() as speaking:
            await call.update(instructions="Tell a story.")
            said = speaking.create_task(say(call))
            seen = await until(call, AgentAudio)
            [heard] = [event for event in seen if isinstance(event, UserSaid)]
            assert "weather" in heard.text.lower()
            kinds = [type(event) for event in seen]
            order = [SpeechStarted, SpeechStopped, ReplyStarted, AgentDelta, AgentAudio]
            assert sorted(order, key=kinds.index) == order
            assert call.session["instructions"] == "Tell a story."
            await said
            speaking.create_task(say(call))
            seen = await until(call, ReplyDone)
            assert seen[-1].raw["response"]["status"] == "cancelled"
            assert any(isinstance(event, SpeechStarted) for event in seen)
            item = next(event.item for event in seen if isinstance(event, AgentAudio))
            came = sum(len(one.pcm) for one in seen if isinstance(one, AgentAudio) and one.item == item)
            half_ms = 500 * came // (2 * CLIENT_RATE)  # on a busy machine less than a second may have come
            await call.truncate(item, half_ms)
            seen = await until(
                call, lambda event: isinstance(event, Failed) or "truncated" in getattr(event, "type", "")
            )
            assert isinstance(seen[-1], Other), seen[-1]
            assert seen[-1].raw["audio_end_ms"] == half_ms

    with serving(tmp_path, llm=f"scripted:llm|{STORY}", **REAL) as server:
        leaving_no_task(converse())
        server.wait_idle()


@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100])
def test_a_turn_in_audio_of_any_rate(server: Server, rate: int) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            await speak(call, rate)
            seen = await until(call, AgentAudio)
            stopped = next(event for event in seen if isinstance(event, SpeechStopped))
            assert 500 <= stopped.at_ms <= 1800
            assert [event.text for event in seen if isinstance(event, UserSaid)] == ["what is the weather"]

    leaving_no_task(converse())
    server.wait_idle()


def test_written_words_are_answered_and_an_answer_can_be_stopped(server: Server) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            await call.add_text("hello")
            await call.respond()
            seen = await until(call, AgentAudio)
            await call.cancel()
            seen += await until(call, ReplyDone)
            assert isinstance(seen[-1], ReplyDone) and seen[-1].status == "cancelled"
            [said] = [event for event in seen if isinstance(event, AgentSaid)]
            deltas = "".join(event.text for event in seen if isinstance(event, AgentDelta))
            assert said.text and deltas.startswith(said.text)

    leaving_no_task(converse())
    server.wait_idle()


def test_what_is_asked_for_too_early_is_asked_for_again(server: Server) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            await call.respond()
            await until(call, AgentAudio)
            await call.respond(instructions="Another one.", metadata={"which": "second"})
            await call.add_text("told as soon as the refusal is")
            refused = await until(
                call, lambda event: isinstance(event, Other) and event.type.endswith("item.done")
            )
            await call.cancel()
            seen = refused + await until(call, ReplyStarted)
            assert seen[-1].raw["response"]["metadata"] == {"which": "second"}
            assert not [event for event in seen if isinstance(event, Failed)]

    leaving_no_task(converse())
    server.wait_idle()


def test_a_mistake_is_reported_and_the_call_goes_on(server: Server) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            await call.update(audio={"output": {"speed": 7}})
            await call.truncate("item_of_nobody", 100)
            await call.update(instructions="Be brief.")
            seen = await until(
                call, lambda event: isinstance(event, Other) and event.type == "session.updated"
            )
            failed = [event for event in seen if isinstance(event, Failed)]
            assert "speed" in failed[0].message
            assert failed[1].code == "item_truncate_invalid_item_id"
            assert call.session["instructions"] == "Be brief."
            with pytest.raises(ValueError, match="even number"):
                await call.send_audio(b"odd")

    leaving_no_task(converse())


def test_a_tool_is_called_and_its_result_is_spoken(tmp_path: Path) -> None:
    port, chat = unused_port(), ChatServer()

    async def converse() -> None:
        async with connect(address(server)) as call:
            await call.update(tools=[WEATHER])
            await speak(call)
            async with asyncio.timeout(PATIENCE):
                async for event in call:
                    match event:
                        case ToolCalled(call=asked, name="weather", arguments=arguments):
                            assert json.loads(arguments) == {"city": "Rome"}
                            await call.return_result(asked, "sunny")
                        case AgentSaid(text=text):
                            assert text == "The weather is sunny."
                            return

    with chat_server(port, chat.answer):
        with serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
            leaving_no_task(converse())
            server.wait_idle()


# --- what goes wrong ------------------------------------------------------------------------------------


def lost(url: str, key: str | None = None, **options: Any) -> str:
    """Return why a call could not be held."""

    async def converse() -> None:
        async with connect(url, key, **options):
            pass

    with pytest.raises(CallLost) as caught:
        leaving_no_task(converse())
    return f"{caught.value.code} {caught.value}"


def test_a_refused_call_says_what_to_do(server: Server) -> None:
    assert "is the server running there?" in lost("ws://127.0.0.1:9")
    assert "there is no WebSocket at /elsewhere, but at /v1/realtime" in lost(f"{address(server)}/elsewhere")


def test_a_key_that_is_missing_or_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def converse() -> None:
        async with connect(address(server), KEY) as call:
            assert call.session["id"]

    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    with serving(tmp_path) as server:
        assert "401" in lost(address(server)) and "connect(url, key=...)" in lost(address(server))
        assert "does not know this key" in lost(address(server), "rj_another")
        leaving_no_task(converse())
        server.wait_idle()


def test_a_busy_server_says_so(tmp_path: Path) -> None:
    async def converse() -> None:
        async with connect(address(server)):
            with pytest.raises(CallLost, match="1 lines are busy") as caught:
                async with connect(address(server)):
                    pass
            assert caught.value.code == 1013

    with serving(tmp_path, max_sessions="1") as server:
        leaving_no_task(converse())
        server.wait_idle()


def test_models_that_still_load_are_waited_for(tmp_path: Path) -> None:
    ready = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        ready.wait(PATIENCE)
        handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")

    async def converse() -> None:
        async with asyncio.timeout(PATIENCE):
            while True:  # the port is not open at once
                try:
                    async with connect(address(server), reconnect_s=0.0):
                        raise AssertionError("the models cannot be there yet")
                except CallLost as error:
                    if error.code == 1013:
                        assert "loading" in str(error)
                        break
                await asyncio.sleep(0.1)
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.5)
            assert not waiting.done()
            ready.set()
            await waiting

    async def wait() -> None:
        async with connect(address(server)) as call:
            assert call.session["id"]

    port = unused_port()
    with chat_server(port, answer):
        with serving(tmp_path, wait=False, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
            asyncio.run(converse())
            server.wait_idle()


def test_a_server_that_speaks_something_else() -> None:
    async def chatter(socket: ServerConnection) -> None:
        await socket.send(greetings.pop())
        await socket.wait_closed()

    async def converse() -> None:
        async with serve(chatter, "127.0.0.1", 0) as other:
            url = f"ws://127.0.0.1:{next(iter(other.sockets)).getsockname()[1]}"
            for reason in (
                "no Realtime server",
                "no Realtime server",
                "no Realtime server",
                "the model is gone",
            ):
                with pytest.raises(CallLost, match=reason):
                    async with asyncio.timeout(PATIENCE), connect(url):
                        pass

    refusal = json.dumps({"type": "error", "error": {"message": "the model is gone"}})
    greetings = [refusal, '{"type": "welcome"}', "[1]", "hello"]
    asyncio.run(converse())


def test_an_event_that_cannot_be_read_ends_the_call_for_good() -> None:
    async def broken(socket: ServerConnection) -> None:
        await socket.send('{"type": "session.created", "session": {"id": "s"}}')
        await socket.send('{"type": "response.created"}')
        await socket.wait_closed()

    async def converse() -> None:
        async with serve(broken, "127.0.0.1", 0) as other:
            url = f"ws://127.0.0.1:{next(iter(other.sockets)).getsockname()[1]}"
            async with connect(url) as call:
                for _ in range(2):
                    with pytest.raises(CallLost, match="breaks the protocol"):
                        await anext(call)
                with pytest.raises(CallLost, match="breaks the protocol"):
                    await call.respond()

    asyncio.run(converse())


def test_a_call_that_the_server_ends_in_good_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            async with asyncio.timeout(PATIENCE):
                seen = [event async for event in call]
            assert call.over and not [event for event in seen if isinstance(event, Reconnected)]
            with pytest.raises(CallLost):
                await call.add_text("too late")

    monkeypatch.setenv("REJOINDER_MAX_CALL_S", "1")
    with serving(tmp_path) as server:
        leaving_no_task(converse())
        server.wait_idle()


def test_nothing_happens_after_the_call(server: Server) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            await call.respond()
            await until(call, AgentAudio)
        assert [event async for event in call] == []
        for late in (call.respond(), call.send_audio(bytes(960)), call.truncate("item", 0)):
            with pytest.raises(CallLost, match="the call is over"):
                await late

    leaving_no_task(converse())
    server.wait_idle()


@pytest.mark.parametrize("when", ["hearing", "speaking", "opening"])
def test_cancelling_leaves_nothing_behind(forgetful: Server, when: str) -> None:
    async def hold(url: str, reached: asyncio.Event) -> None:
        if when == "opening":
            reached.set()
        async with connect(url) as call:
            reached.set()
            while when == "speaking":
                await call.send_audio(noise(1.0, CLIENT_RATE))
            async for _ in call:
                pass

    async def silent(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async def converse() -> None:
        async with serve(silent, "127.0.0.1", 0) as other:
            port = next(iter(other.sockets)).getsockname()[1] if when == "opening" else forgetful.port
            reached = asyncio.Event()
            task = asyncio.create_task(hold(f"ws://127.0.0.1:{port}", reached))
            async with asyncio.timeout(PATIENCE):
                await reached.wait()
                await asyncio.sleep(0.3)
                task.cancel()
                await asyncio.wait([task])
            assert task.cancelled()
            assert not [
                one for one in asyncio.all_tasks() if "keepalive" in repr(one) and "client" in repr(one)
            ]

    leaving_no_task(converse())
    forgetful.wait_idle()


# --- sockets that are lost ------------------------------------------------------------------------------


def test_a_call_begins_anew_as_it_was_configured(forgetful: Server) -> None:
    async def converse() -> None:
        async with wire_to(forgetful.port) as wire:
            async with connect(wire.http) as call:
                await call.update(instructions="Be brief.", audio={"input": {"turn_detection": None}})
                await call.update(instructions="Be very brief.")
                await until(call, lambda event: call.session.get("instructions") == "Be very brief.")
                before = call.session["id"]
                await wire.cut(refuse=True)
                hearing = asyncio.create_task(until(call, Reconnected))
                await wire.is_missed()
                await call.send_audio(bytes(4800))
                await call.add_text("written while there was no socket")
                assert call.dropped_seconds == pytest.approx(0.1)
                wire.mend()
                back = (await hearing)[-1]
                assert isinstance(back, Reconnected) and not back.resumed and back.missed
                seen = await until(
                    call, lambda event: isinstance(event, Other) and event.type.endswith("item.done")
                )
                assert call.session["id"] != before
                assert call.session["instructions"] == "Be very brief."
                assert call.session["audio"]["input"]["turn_detection"] is None
                assert seen[-1].raw["item"]["content"][0]["text"] == "written while there was no socket"
                assert not [event for event in seen if isinstance(event, Failed)]

    leaving_no_task(converse())
    forgetful.wait_idle()


def test_an_answer_that_the_server_has_forgotten_has_failed(forgetful: Server) -> None:
    async def converse() -> None:
        async with wire_to(forgetful.port) as wire, connect(wire.http) as call:
            await call.respond()
            await until(call, ReplyDone)
            await call.respond()
            started = (await until(call, ReplyStarted))[-1]
            await until(call, AgentAudio)
            await wire.cut()
            seen = await until(call, Reconnected)
            (done,) = [event for event in seen if isinstance(event, ReplyDone)]
            assert isinstance(started, ReplyStarted) and seen[-2:] == [done, Reconnected(False, True)]
            assert (done.reply, done.status) == (started.reply, "failed")
            assert done.raw["response"]["status_details"]["error"]["code"] == "connection_lost"
            await wire.cut()
            assert not [event for event in await until(call, Reconnected) if isinstance(event, ReplyDone)]
            await call.respond()
            assert isinstance((await until(call, ReplyDone))[-1], ReplyDone)

    leaving_no_task(converse())
    forgetful.wait_idle()


def test_a_call_that_shall_not_come_back_is_lost(forgetful: Server) -> None:
    async def converse() -> None:
        async with wire_to(forgetful.port) as wire, connect(wire.http, reconnect_s=0.0) as call:
            await wire.cut()
            with pytest.raises(CallLost, match="lost"):
                await until(call, Reconnected)
            with pytest.raises(CallLost, match="lost"):
                await call.send_audio(bytes(960))

    leaving_no_task(converse())
    forgetful.wait_idle()


def test_patience_ends(forgetful: Server) -> None:
    async def converse() -> None:
        async with wire_to(forgetful.port) as wire, connect(wire.http, reconnect_s=1.0) as call:
            await wire.cut(refuse=True)
            with pytest.raises(CallLost, match="cannot call"):
                await until(call, Reconnected)

    leaving_no_task(converse())
    forgetful.wait_idle()


def test_what_waits_for_a_socket_is_bounded(forgetful: Server) -> None:
    async def converse() -> None:
        async with wire_to(forgetful.port) as wire, connect(wire.http) as call:
            await wire.cut(refuse=True)
            with pytest.raises(CallLost, match="iterate over the call"):
                for _ in range(1000):
                    await call.respond()
                    await asyncio.sleep(0)

    leaving_no_task(converse())
    forgetful.wait_idle()


def test_hanging_up_while_the_socket_is_lost_opens_no_socket(forgetful: Server) -> None:
    async def hear(call: Call) -> list[CallEvent]:
        return [event async for event in call]

    async def converse() -> None:
        async with wire_to(forgetful.port) as wire:
            async with connect(wire.http) as call:
                await wire.cut(refuse=True)
                hearing = asyncio.create_task(hear(call))
                await wire.is_missed()
            wire.mend()
            async with asyncio.timeout(PATIENCE):
                assert not [event for event in await hearing if isinstance(event, Reconnected)]

    leaving_no_task(converse())
    forgetful.wait_idle()


@pytest.mark.realtime
def test_a_late_reader_loses_no_event(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def converse() -> None:
        async with connect(address(server)) as call:
            await call.respond()
            await asyncio.sleep(4.0)  # a network that is gone would have been noticed long ago
            seconds = 0.0
            while seconds < 3.0:
                event = (await until(call, lambda event: isinstance(event, AgentAudio | Reconnected)))[-1]
                assert isinstance(event, AgentAudio), "pongs were seen meanwhile"
                seconds += len(event.pcm) / (2 * CLIENT_RATE)

    monkeypatch.setattr(client_socket, "PING_SECONDS", 0.5)
    monkeypatch.setattr(client_socket, "PONG_SECONDS", 3.0)
    leaving_no_task(converse())
    server.wait_idle()


# --- conversations that are resumed ---------------------------------------------------------------------


def spoken(seen: list[CallEvent]) -> tuple[str, bytes]:
    """Return the words and the sound of the agent."""
    words = "".join(event.text for event in seen if isinstance(event, AgentDelta))
    return words, b"".join(event.pcm for event in seen if isinstance(event, AgentAudio))


def test_an_answer_goes_on_where_its_socket_was_lost(tmp_path: Path) -> None:
    async def converse() -> None:
        async with wire_to(server.port) as wire, connect(wire.http) as call:
            await call.add_text("hello")
            await call.respond()
            whole = await until(call, ReplyDone)
            await call.respond()
            seen = await until(call, AgentAudio)
            for _ in range(3):
                await wire.cut(refuse=True)
                hearing = asyncio.create_task(until(call, Reconnected))
                await wire.is_missed()
                await call.add_text("and this, too")
                wire.mend()
                seen += await hearing
                back = seen[-1]
                assert isinstance(back, Reconnected) and back.resumed and not back.missed
                seen += await until(call, AgentAudio)
            seen += await until(call, ReplyDone)
            await call.add_text("the end")
            seen += await until(call, lambda event: "item.done" in str(event) and "the end" in str(event.raw))
            assert spoken(seen) == spoken(whole)
            assert [event.text for event in seen if isinstance(event, AgentSaid)] == [spoken(whole)[0]]
            added = [
                event for event in seen if isinstance(event, Other) and event.type.endswith("item.added")
            ]
            written = [event.raw["item"]["content"] for event in added if event.raw["item"]["role"] == "user"]
            assert [content[0]["text"] for content in written] == [*["and this, too"] * 3, "the end"]
            ids = [event.raw["event_id"] for event in seen if not isinstance(event, Reconnected)]
            assert len(ids) == len(set(ids)), "nothing comes twice"
            assert not [event for event in seen if isinstance(event, Failed)]

    with serving(tmp_path) as server:
        leaving_no_task(converse())
        server.wait_idle()


@pytest.mark.parametrize("iterates", [True, False])
def test_hanging_up_while_reconnecting_leaves_no_conversation(tmp_path: Path, iterates: bool) -> None:
    """The server would wait for it for half a minute; the line is free at once."""

    async def converse() -> None:
        async with wire_to(server.port) as wire:
            async with connect(wire.http) as call:
                await call.respond()
                await until(call, AgentAudio)
                await wire.cut(refuse=True)
                hearing = asyncio.create_task(until(call, Reconnected)) if iterates else None
                # Without a reader the client does not notice; the server does at once.
                await (wire.is_missed() if iterates else asyncio.sleep(0.5))
                assert server.sessions() == 1
                wire.mend()
            if hearing is not None:
                with suppress(AssertionError, StopAsyncIteration):
                    await hearing

    with serving(tmp_path, resume_s="600") as server:
        leaving_no_task(converse())
        server.wait_idle()


def test_what_was_missed_is_said(tmp_path: Path) -> None:
    """As where the server has thrown away events that nobody fetched."""

    async def converse() -> None:
        async with wire_to(server.port) as wire, connect(wire.http) as call:
            await call.add_text("hello")
            await call.respond()
            await until(call, AgentAudio)
            await wire.cut(refuse=True)
            hearing = asyncio.create_task(until(call, Reconnected))
            await wire.is_missed()  # what has come already is read first
            call._conversation.last_event = "event_of_nobody"
            wire.mend()
            seen = await hearing
            assert isinstance(seen[-1], Reconnected) and seen[-1].resumed and seen[-1].missed
            seen = await until(call, ReplyDone)
            assert isinstance(seen[-1], ReplyDone) and seen[-1].status == "completed"
            assert spoken(seen)[1]

    with serving(tmp_path) as server:
        leaving_no_task(converse())
        server.wait_idle()
