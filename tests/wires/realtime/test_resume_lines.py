"""A vanished client does not keep a line that a new caller needs."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from support.patience import PATIENCE
from support.resuming import DELTA, back, conversation, interrupted, session
from support.serving import Server, Talk, serving
from websockets.exceptions import ConnectionClosed

CALLERS = 16


def gone(server: Server, text: str = "") -> Talk:
    """Return a call that broke off: one in which nothing was said, or one with an item."""
    with Talk(server) as talk:
        if text:
            content = [{"type": "input_text", "text": text}]
            talk.send(
                "conversation.item.create", item={"type": "message", "role": "user", "content": content}
            )
            talk.until("conversation.item.done")
        talk.cut()
    return talk


def said(talk: Talk) -> str:
    """Return why a call could not go on with a conversation."""
    return str(talk.until("error")["error"]["code"])


def test_conversations_without_content_are_not_kept(tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions=str(CALLERS)) as server:
        talks = [gone(server) for _ in range(CALLERS)]
        server.wait_idle()  # at once: a line is kept for 30 s, longer than this waits
        with Talk(server) as talk:
            assert talk.turn()["status"] == "completed"
        with back(server, talks[0], greeted=False) as again:
            assert said(again) == "conversation_not_found"


def test_waiting_conversation_frees_its_line_for_a_new_caller(tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="3") as server:
        first, second = gone(server, "one"), gone(server, "two")
        with Talk(server) as live:
            url = f"{server.http}/v1/sessions/{session(first)}/events"
            with urllib.request.urlopen(url, timeout=PATIENCE) as watching:
                with Talk(server) as caller:
                    assert caller.turn()["status"] == "completed"
                    events = [json.loads(line[5:]) for line in watching if line.startswith(b"data:")]
                    assert events[-1]["type"] == "ended" and "another caller" in events[-1]["reason"]
                    assert live.turn()["status"] == "completed", "who is there stays"
                server.wait_idle(sessions=2)  # the caller's line is free, so no other conversation makes way
                with back(server, first, greeted=False) as again:
                    assert said(again) == "conversation_not_found"
                    with back(server, second) as other:
                        assert session(other) == session(second), "only the oldest had to go"
        server.wait_idle()


def test_connected_clients_keep_their_lines(tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="1") as server, Talk(server) as live:
        with Talk(server, greeted=False) as refused:
            try:
                refused.event()
            except ConnectionClosed as closed:
                assert closed.rcvd is not None and "all 1 lines are busy" in closed.rcvd.reason
            else:
                raise AssertionError("there was no line for it")
        assert live.turn()["status"] == "completed"


def test_speech_in_progress_counts_as_content(tmp_path: Path) -> None:
    """The socket breaks off in the first words, or in the answer to them."""
    with serving(tmp_path) as server:
        with Talk(server) as talk:
            talk.speak(seconds=1.0, pause=0.0)
            talk.until("input_audio_buffer.speech_started")
            talk.cut()
        with back(server, talk) as again:
            assert session(again) == session(talk) and conversation(again) == conversation(talk)
            again.append(bytes(48_000))  # the silence that ends the turn
            assert again.until("response.done")["response"]["status"] == "completed"
        broken = interrupted(server, deltas=2)
        with back(server, broken) as again:
            assert session(again) == session(broken)
            again.until(DELTA)
