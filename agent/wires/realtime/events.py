"""Server events of the OpenAI Realtime protocol, as dictionaries, in the order clients expect."""

from __future__ import annotations

import secrets
from typing import Any

from rejoinder.agent.wires.failures import MAX_MESSAGE, PublicError, error_body
from rejoinder.pipeline import ProtocolError, Usage

ServerEvent = dict[str, Any]


def new_conversation() -> str:
    """Return an identifier that cannot be guessed: 256 random bits."""
    return f"conv_{secrets.token_hex(32)}"


def event(type_: str, **fields: Any) -> ServerEvent:
    """Return a server event with a new id."""
    return {"type": type_, "event_id": f"event_{secrets.token_hex(10)}", **fields}


def failure(
    error: ProtocolError, client_event: str | None, kind: str = "invalid_request_error"
) -> ServerEvent:
    """Return an error event. client_event: the ``event_id`` of the client's message that was wrong."""
    body = error_body(str(error), kind, error.code, error.param)
    return event("error", error={**body, "event_id": client_event})


def kept_item(id_: str, status: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation item: the given fields, and those that all items have."""
    return {"id": id_, "object": "realtime.item", "status": status, **fields}


def message_item(id_: str, role: str, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Return a message item: something that was said or typed."""
    return kept_item(id_, status, {"type": "message", "role": role, "content": content})


def user_turn(
    item: dict[str, Any], previous: str | None, seconds: float, text: str, error: PublicError | None = None
) -> list[ServerEvent]:
    """Return the events at the end of a user's spoken turn.

    previous: the id of the item before it. error: why the words are not known, None if they are.
    """
    return [
        event("input_audio_buffer.committed", item_id=item["id"], previous_item_id=previous),
        *item_added(item, previous),
        transcribed(item["id"], text, seconds, *((error.message, error.code) if error else ())),
    ]


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return a response's usage. Only text has tokens here."""
    return {
        "total_tokens": usage.read + usage.written,
        "input_tokens": usage.read,
        "output_tokens": usage.written,
        "input_token_details": {"text_tokens": usage.read, "audio_tokens": 0, "cached_tokens": usage.cached},
        "output_token_details": {"text_tokens": usage.written, "audio_tokens": 0},
    }


def transcribed(
    id_: str, text: str, seconds: float, error: str = "", code: str = "model_error"
) -> ServerEvent:
    """Return the event with the transcript of an item's audio, or with the error that prevented it.

    seconds: length of the audio.
    """
    name = "conversation.item.input_audio_transcription"
    if error:
        cause = {"type": "server_error", "code": code, "message": error[:MAX_MESSAGE], "param": None}
        return event(f"{name}.failed", item_id=id_, content_index=0, error=cause)
    usage = {"type": "duration", "seconds": round(seconds, 3)}
    return event(f"{name}.completed", item_id=id_, content_index=0, transcript=text, usage=usage)


def resumed(conversation: str, after: str | None, item: str | None, start: int) -> ServerEvent:
    """Return the event that says where a conversation goes on over a new socket.

    after: the last event that the client has, None where it gets all items. item, start: the item whose audio
    is sent again, and from which millisecond on.
    """
    about = {"conversation_id": conversation, "after": after}
    return event("rejoinder.resumed", **about, item_id=item, audio_start_ms=start)


def item_added(item: dict[str, Any], previous: str | None) -> list[ServerEvent]:
    """Return the two events that acknowledge a complete item."""
    return [
        event("conversation.item.added", item=item, previous_item_id=previous),
        event("conversation.item.done", item=item, previous_item_id=previous),
    ]
