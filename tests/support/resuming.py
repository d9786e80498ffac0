"""A caller that loses its socket and comes back."""

from __future__ import annotations

import base64
import time
from typing import Any

from support.serving import Server, Talk

ANSWER = "The answer has a few words. Then come some more. And these are its last."

DELTA = "response.output_audio.delta"

WORDS = "response.output_audio_transcript.delta"


def conversation(talk: Talk) -> str:
    """Return the id of the call's conversation."""
    created = [event for event in talk.seen if event["type"] == "conversation.created"]
    return str((created[0] if created else talk.until("conversation.created"))["conversation"]["id"])


def session(talk: Talk) -> str:
    return str(next(e for e in talk.seen if e["type"] == "session.created")["session"]["id"])


def audio(events: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(event["delta"]) for event in events if event["type"] == DELTA)


def words(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == WORDS)


def interrupted(server: Server, deltas: int, unread: float = 0.3, **options: Any) -> Talk:
    """Return a call that broke off in mid-answer, with ``unread`` seconds that never reached the client."""
    with Talk(server, **options) as talk:
        conversation(talk)
        talk.speak()
        for _ in range(deltas):
            talk.until(DELTA)
            talk.append(bytes(1920))  # as a microphone does: it is there
        time.sleep(unread)
        talk.cut()
    return talk


def back(server: Server, before: Talk, **options: Any) -> Talk:
    """Come back to a call, with everything that was read of it."""
    query = f"&conversation_id={conversation(before)}&last_event_id={before.seen[-1]['event_id']}"
    return Talk(server, query=query, **options)


def transcript(talk: Talk, item: str) -> str:
    """Return the heard part of an item, as the server reports it."""
    talk.send("conversation.item.retrieve", item_id=item)
    return str(talk.until("conversation.item.retrieved")["item"]["content"][0]["transcript"])
