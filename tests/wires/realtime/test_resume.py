"""A client whose socket breaks without a close frame and that comes back, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.websocket_reconnection import ReconnectingEvent, ReconnectingOverrides
from support.published import conforms
from support.resuming import (
    ANSWER,
    DELTA,
    audio,
    back,
    conversation,
    interrupted,
    session,
    transcript,
    words,
)
from support.serving import LINE, PATIENCE, Server, Talk, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.server.keys import hashed

KEY = "rj_a-key-of-the-tests"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=f"scripted:llm|{ANSWER}") as running:
        yield running


@pytest.fixture(scope="module")
def whole(server: Server) -> bytes:
    """Return the audio of the answer in a call that nothing happens to."""
    with Talk(server) as talk:
        talk.turn()
        return audio(talk.seen)


def test_resumed_client_hears_the_rest_and_nothing_twice(server: Server, whole: bytes) -> None:
    before = interrupted(server, deltas=20)
    with back(server, before) as after:
        done = after.until("response.done")["response"]
        assert session(after) == session(before)
        assert [event["type"] for event in after.seen[:3]] == [
            "session.created",
            "conversation.created",
            "rejoinder.resumed",
        ]
        assert after.seen[2]["after"] == before.seen[-1]["event_id"]
        both = before.seen + after.seen
        conforms(both)
        assert len({event["event_id"] for event in both}) == len(both)
        assert words(both) == ANSWER
        assert done["status"] == "completed"
        assert audio(both) == whole
        assert transcript(after, done["output"][0]["id"]) == ANSWER
        assert after.turn()["status"] == "completed", "the conversation goes on"
    server.wait_idle()


def test_socket_breaks_again_and_again(server: Server, whole: bytes) -> None:
    """Once in the middle of the answer, and once before anything but the greeting was read."""
    talks = [interrupted(server, deltas=5)]
    for deltas in (0, 10, 0, 0, 10):
        with back(server, talks[-1]) as talk:
            talk.until("rejoinder.resumed")
            for _ in range(deltas):
                talk.until(DELTA)
            talk.cut()
        talk.seen = [*talk.seen]
        talks.append(talk)
    with back(server, talks[-1]) as talk:
        done = talk.until("response.done")["response"]
        talks.append(talk)
        told = [event for one in talks for event in one.seen]
        assert words(told) == ANSWER and audio(told) == whole
        assert transcript(talk, done["output"][0]["id"]) == ANSWER
    server.wait_idle()


def test_interruption_after_resuming_counts_all_heard_audio(server: Server) -> None:
    before = interrupted(server, deltas=10)
    with back(server, before) as after:
        for _ in range(20):
            item = after.until(DELTA)["item_id"]
        heard = len(audio(before.seen + after.seen)) // 48
        after.speak(seconds=2.0)
        after.until("input_audio_buffer.speech_started")
        assert after.until("response.done")["response"]["status"] == "cancelled"
        after.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=heard)
        after.until("conversation.item.truncated")
        said = transcript(after, item)
        assert 0 < len(said) < len(ANSWER) and ANSWER.startswith(said)
        assert after.until("response.done")["response"]["status"] == "completed"
    server.wait_idle()


def test_client_that_kept_nothing_gets_the_items_and_the_unheard_audio(server: Server, whole: bytes) -> None:
    before = interrupted(server, deltas=30, unread=0.0)
    with Talk(server, query=f"&conversation_id={conversation(before)}") as after:
        resumed = after.until("rejoinder.resumed")
        done = after.until("response.done")["response"]
        conforms(after.seen)
        assert resumed["after"] is None and resumed["item_id"] == done["output"][0]["id"]
        heard = resumed["audio_start_ms"] * 48
        assert 0 < heard < len(whole) and audio(after.seen) == whole[heard:]
        assert words(after.seen) == ANSWER
        items = [event["item"] for event in after.seen if event["type"] == "conversation.item.done"]
        assert [item["role"] for item in items] == ["user", "assistant"]
        assert items[0]["content"][0]["transcript"] == "what is the weather"
        item, sent = resumed["item_id"], len(audio(after.seen)) // 48
        for length, answer in ((sent + 1, "error"), (sent, "conversation.item.truncated")):
            after.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=length)
            assert after.until(answer)
        assert transcript(after, item) == ANSWER
    server.wait_idle()


def test_client_that_kept_nothing_may_report_what_it_played(server: Server, whole: bytes) -> None:
    before = interrupted(server, deltas=30)
    item = before.seen[-1]["item_id"]
    played = f"&item_id={item}&audio_end_ms=200"
    with Talk(server, query=f"&conversation_id={conversation(before)}{played}") as after:
        assert after.until("rejoinder.resumed")["audio_start_ms"] == 200
        after.until("response.done")
        assert audio(after.seen) == whole[200 * 48 :]
    server.wait_idle()


def test_users_turn_ends_while_the_client_is_away(server: Server, whole: bytes) -> None:
    with Talk(server) as before:
        conversation(before)
        before.speak(pause=0.0)
        before.until("input_audio_buffer.speech_started")
        url = f"{server.http}/v1/sessions/{session(before)}/events"
        with urllib.request.urlopen(url, timeout=PATIENCE) as watching:
            assert watching.readline().startswith(b"data:")
            before.cut()
            assert any(b'"user.said"' in line for line in watching), "the turn ends without the client"
    with back(server, before) as after:
        done = after.until("response.done")["response"]
        assert done["status"] == "completed" and words(after.seen) == ANSWER
        kinds = [event["type"] for event in after.seen]
        assert kinds.index("input_audio_buffer.speech_stopped") < kinds.index("response.created")
        assert audio(after.seen) == whole
    server.wait_idle()


def test_another_socket_takes_over_from_one_that_still_seems_alive(server: Server, whole: bytes) -> None:
    with Talk(server) as old:
        conversation(old)
        old.speak()
        for _ in range(10):
            old.until(DELTA)
        with back(server, old) as new:
            new.until("response.done")
            new.send("response.create")
            new.until("response.done")
            read = len(old.seen)
            with pytest.raises(ConnectionClosed):
                old.until("nothing more")
            assert (old.socket.close_code, old.socket.close_reason) == (
                1000,
                "the conversation goes on over another socket",
            )
            assert audio(old.seen[:read] + new.seen).startswith(whole)
    server.wait_idle()


def test_openai_python_comes_back_by_itself(server: Server, whole: bytes) -> None:
    """The handler is the one of docs/reference/resuming.md."""
    place: dict[str, object] = {}
    told: list[dict[str, Any]] = []

    def coming_back(event: ReconnectingEvent) -> ReconnectingOverrides:
        return {"extra_query": {**event.extra_query, **place}}

    async def hold() -> None:
        client = AsyncOpenAI(
            api_key="none",
            base_url=f"{server.http}/v1",
            websocket_base_url=f"ws://127.0.0.1:{server.port}/v1",
        )
        connecting = client.realtime.connect(model="default", on_reconnecting=coming_back)
        async with client, connecting as call, asyncio.timeout(PATIENCE):
            await call.response.create()
            async for event in call:
                place["last_event_id"] = event.event_id
                if event.type == "conversation.created":
                    place["conversation_id"] = event.conversation.id
                told.append(event.model_dump(exclude_unset=True))
                if len([one for one in told if one["type"] == DELTA]) == 20 and event.type == DELTA:
                    call._connection.transport.abort()
                if event.type == "response.done":
                    break

    asyncio.run(hold())
    kinds = [event["type"] for event in told]
    assert kinds.count("session.created") == 2 and kinds.count("rejoinder.resumed") == 1
    assert words(told) == ANSWER and audio(told) == whole
    server.wait_idle()


@pytest.mark.parametrize("hung_up", [True, False])
def test_client_that_has_stopped_reading_may_come_back(tmp_path: Path, hung_up: bool) -> None:
    """It is hung up on after some seconds, in the middle of what the buffers on the way still hold.

    Or it comes back before that, as a telephone that has changed networks does: then nobody waits.
    """
    said = " ".join([ANSWER] * 2)
    with serving(tmp_path, llm=f"scripted:llm|{said}") as server, socket.socket() as narrow:
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(("127.0.0.1", server.port))
        with Talk(server, sock=narrow, max_queue=1, compression=None) as talk:
            conversation(talk)
            talk.speak()
            talk.until(DELTA)
            deadline = time.monotonic() + PATIENCE
            while hung_up and "has not read" not in server.log.read_text():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            if not hung_up:
                time.sleep(4.0)  # the buffers are full after 3 s, and after 8 s it is hung up on
            with back(server, talk) as after:
                done = after.until("response.done", timeout=2 * PATIENCE)["response"]
                both = talk.seen + after.seen
                assert words(both) == said and transcript(after, done["output"][0]["id"]) == said
                assert len({event["event_id"] for event in both}) == len(both)
                assert ("has not read" in server.log.read_text()) is hung_up
                assert len(audio(both)) / 48_000 == pytest.approx(0.06 * len(said), rel=0.1), (
                    "and all is heard"
                )
        server.wait_idle()


def test_call_does_not_wait_after_a_close_frame(server: Server) -> None:
    for code in (1000, 1001):
        with Talk(server) as talk:
            gone = conversation(talk)
            talk.socket.close(code)
        server.wait_idle()
        with Talk(server, query=f"&conversation_id={gone}&last_event_id=event_1") as talk:
            assert_new(talk, gone)


def assert_new(talk: Talk, gone: str) -> None:
    """Check that a client gets an error for its lost conversation, and a new one."""
    error = talk.until("error")["error"]
    assert (error["code"], error["param"]) == ("conversation_not_found", "conversation_id")
    assert conversation(talk) != gone
    conforms(talk.seen)
    assert talk.turn()["status"] == "completed"


def test_call_ends_when_its_client_stays_away(tmp_path: Path) -> None:
    """And while it is open, the conversation has a line, for which no other caller has a use."""
    with serving(tmp_path, llm=f"scripted:llm|{LINE}", resume_s="8", max_sessions="1") as server:
        gone = interrupted(server, deltas=3)
        assert server.sessions() == 1
        with back(server, gone) as after:
            assert after.until("response.done")["response"]["status"] == "completed"
            after.cut()
        server.wait_idle()
        with back(server, gone) as talk:
            assert_new(talk, conversation(gone))
        server.wait_idle()


def test_call_ends_with_its_socket_when_resuming_is_off(tmp_path: Path) -> None:
    with serving(tmp_path, llm=f"scripted:llm|{LINE}", resume_s="0") as server:
        with Talk(server) as alive, back(server, alive) as talk:
            assert_new(talk, conversation(alive))
        gone = interrupted(server, deltas=3)
        server.wait_idle()
        with back(server, gone) as talk:
            assert_new(talk, conversation(gone))


def test_another_keys_conversation_cannot_be_resumed(tmp_path: Path) -> None:
    other = f"{KEY}-of-somebody-else"
    keys = f"{hashed(KEY)} {hashed(other)}"
    with serving(tmp_path, llm=f"scripted:llm|{LINE}", api_keys=keys, max_sessions="2") as server:
        mine = {"additional_headers": {"Authorization": f"Bearer {KEY}"}}
        theirs = {"additional_headers": {"Authorization": f"Bearer {other}"}}
        gone = interrupted(server, deltas=3, **mine)
        with pytest.raises(InvalidStatus) as refused, back(server, gone):
            pass
        assert refused.value.response.status_code == 401
        with back(server, gone, **theirs) as talk:
            assert_new(talk, conversation(gone))
        with back(server, gone, **mine) as talk:
            assert session(talk) == session(gone)
            assert talk.until("response.done")["response"]["status"] == "completed"
        server.wait_idle()


def test_shutdown_does_not_wait_for_absent_clients(tmp_path: Path) -> None:
    with serving(tmp_path, llm=f"scripted:llm|{ANSWER}", resume_s="600") as server:
        interrupted(server, deltas=3)
        assert server.sessions() == 1
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE, "and its log is clean"
