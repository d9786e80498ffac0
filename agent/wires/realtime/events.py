"""The server's side of the OpenAI Realtime protocol: events as dictionaries, in the order clients expect."""

from __future__ import annotations

import secrets
from typing import Any

from rejoinder.pipeline import ProtocolError, Usage

ServerEvent = dict[str, Any]
MAX_MESSAGE = 500
"""Characters of an error's message: it may quote what the client sent."""


SERVER_CODES = frozenset(("model_error", "model_timeout", "overloaded", "server_error"))
"""Codes of errors that are the server's, and not in what the client sent."""


def new_id(kind: str) -> str:
    """Return a fresh identifier such as ``item_3f…``."""
    return f"{kind}_{secrets.token_hex(10)}"


def new_conversation() -> str:
    """Return an identifier that nobody can guess: 256 random bits."""
    return f"conv_{secrets.token_hex(32)}"


def event(type_: str, **fields: Any) -> ServerEvent:
    """Return a server event with an id of its own."""
    return {"type": type_, "event_id": new_id("event"), **fields}


def kind_of(code: str) -> str:
    """Return the type of an error with this code."""
    return "server_error" if code in SERVER_CODES else "invalid_request_error"


def failure(
    error: ProtocolError, client_event: str | None, kind: str = "invalid_request_error"
) -> ServerEvent:
    """Return the error event; ``client_event`` is the id the client gave to what it did wrong."""
    body = {
        "type": kind,
        "code": error.code,
        "message": str(error)[:MAX_MESSAGE],
        "param": error.param,
        "event_id": client_event,
    }
    return event("error", error=body)


def kept_item(id_: str, status: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation item: its fields, and what all of them have."""
    return {"id": id_, "object": "realtime.item", "status": status, **fields}


def message_item(id_: str, role: str, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Return the item of something said or written."""
    return kept_item(id_, status, {"type": "message", "role": role, "content": content})


def user_turn(item: dict[str, Any], previous: str | None, seconds: float, text: str) -> list[ServerEvent]:
    """Return what follows the end of a user's spoken turn."""
    return [
        event("input_audio_buffer.committed", item_id=item["id"], previous_item_id=previous),
        *item_added(item, previous),
        transcribed(item["id"], text, seconds),
    ]


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return a response's usage: text alone has tokens here, and none of them is cheaper for being cached."""
    return {
        "total_tokens": usage.read + usage.written,
        "input_tokens": usage.read,
        "output_tokens": usage.written,
        "input_token_details": {"text_tokens": usage.read, "audio_tokens": 0, "cached_tokens": 0},
        "output_token_details": {"text_tokens": usage.written, "audio_tokens": 0},
    }


def transcribed(id_: str, text: str, seconds: float, error: str = "") -> ServerEvent:
    """Return what was said in an item's audio of so many seconds, or why that is not known."""
    name = "conversation.item.input_audio_transcription"
    if error:
        cause = {"type": "server_error", "code": "model_error", "message": error[:MAX_MESSAGE], "param": None}
        return event(f"{name}.failed", item_id=id_, content_index=0, error=cause)
    usage = {"type": "duration", "seconds": round(seconds, 3)}
    return event(f"{name}.completed", item_id=id_, content_index=0, transcript=text, usage=usage)


def item_added(item: dict[str, Any], previous: str | None) -> list[ServerEvent]:
    """Return the pair of events that acknowledge a complete item."""
    return [
        event("conversation.item.added", item=item, previous_item_id=previous),
        event("conversation.item.done", item=item, previous_item_id=previous),
    ]
