"""The server's side of the OpenAI Realtime protocol: events as dictionaries, in the order clients expect."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from rejoinder.agent.realtime_messages import PCM_RATE
from rejoinder.agent.resampler import Resampler
from rejoinder.pipeline import AudioChunk, ProtocolError

ServerEvent = dict[str, Any]
MAX_MESSAGE = 500
"""Characters of an error's message: it may quote what the client sent."""


def new_id(kind: str) -> str:
    """Return a fresh identifier such as ``item_3f…``."""
    return f"{kind}_{secrets.token_hex(10)}"


def event(type_: str, **fields: Any) -> ServerEvent:
    """Return a server event with an id of its own."""
    return {"type": type_, "event_id": new_id("event"), **fields}


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


def message_item(id_: str, role: str, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Return a conversation item."""
    return {
        "id": id_,
        "object": "realtime.item",
        "type": "message",
        "status": status,
        "role": role,
        "content": content,
    }


def user_turn(item: dict[str, Any], previous: str | None, seconds: float, text: str) -> list[ServerEvent]:
    """Return what follows the end of a user's spoken turn."""
    return [
        event("input_audio_buffer.committed", item_id=item["id"], previous_item_id=previous),
        *item_added(item, previous),
        event(
            "conversation.item.input_audio_transcription.completed",
            item_id=item["id"],
            content_index=0,
            transcript=text,
            usage={"type": "duration", "seconds": round(seconds, 3)},
        ),
    ]


def item_added(item: dict[str, Any], previous: str | None) -> list[ServerEvent]:
    """Return the pair of events that acknowledge a complete item."""
    return [
        event("conversation.item.added", item=item, previous_item_id=previous),
        event("conversation.item.done", item=item, previous_item_id=previous),
    ]


class ResponseEvents:
    """The events of one response, whose single output is one spoken message."""

    def __init__(self, turn: int, previous: str | None, metadata: dict[str, str] | None) -> None:
        self.turn = turn
        self.id = new_id("resp")
        self.item_id = new_id("item")
        self.transcript = ""
        self.sent_bytes = 0
        self.corrected = self.cut = self.traced = False
        self._resampler: Resampler | None = None
        self._previous = previous
        self._metadata = metadata
        self._place = {"response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0}

    def begin(self) -> list[ServerEvent]:
        """Announce the response."""
        item = message_item(self.item_id, "assistant", [], "in_progress")
        return [
            event("response.created", response=self._response("in_progress", [])),
            event("response.output_item.added", response_id=self.id, output_index=0, item=item),
            event("conversation.item.added", item=item, previous_item_id=self._previous),
            event("response.content_part.added", **self._place, part={"type": "audio", "transcript": ""}),
        ]

    def text(self, text: str) -> list[ServerEvent]:
        """Announce the text of the audio that follows."""
        delta = f" {text}" if self.transcript else text
        self.transcript += delta
        return [event("response.output_audio_transcript.delta", **self._place, delta=delta)]

    def audio(self, chunk: AudioChunk) -> list[ServerEvent]:
        """Send audio, at the rate of the wire."""
        if chunk.rate == PCM_RATE:
            return self._audio(chunk.pcm)
        if self._resampler is None:
            self._resampler = Resampler(chunk.rate, PCM_RATE)
        return self._audio(self._resampler.feed(chunk))

    def _audio(self, pcm: bytes) -> list[ServerEvent]:
        self.sent_bytes += len(pcm)
        delta = base64.b64encode(pcm).decode("ascii")
        return [event("response.output_audio.delta", **self._place, delta=delta)] if pcm else []

    def end(self, status: str, reason: str = "turn_detected") -> list[ServerEvent]:
        """Close everything that was opened.

        status: completed, cancelled or failed. reason: turn_detected or client_cancelled, where cancelled.
        """
        rest: list[ServerEvent] = []
        if status == "completed" and self._resampler is not None:
            rest = self._audio(self._resampler.feed(AudioChunk(b"", PCM_RATE), last=True))
        self._resampler = None  # responses are kept for their items
        part = {"type": "audio", "transcript": self.transcript}
        item = self.item("completed" if status == "completed" else "incomplete")
        return [
            *rest,
            event("response.output_audio.done", **self._place),
            event("response.output_audio_transcript.done", **self._place, transcript=self.transcript),
            event("response.content_part.done", **self._place, part=part),
            event("response.output_item.done", response_id=self.id, output_index=0, item=item),
            event("conversation.item.done", item=item, previous_item_id=self._previous),
            event("response.done", response=self._response(status, [item], reason)),
        ]

    def trace(self, budget: list[tuple[str, float]], counts: dict[str, float]) -> list[ServerEvent]:
        """Tell once where the time went; ``budget`` is named parts in milliseconds."""
        if self.traced:
            return []
        self.traced = True
        parts = [{"name": name, "ms": round(ms, 1)} for name, ms in budget]
        total = round(sum(ms for _, ms in budget), 1)
        about = {"turn": self.turn, "response_id": self.id, "total_ms": total}
        trace = event("rejoinder.trace", **about, parts=parts, counts=counts)
        return [trace] if parts else []

    def item(self, status: str) -> dict[str, Any]:
        """Return the item that the response put into the conversation."""
        content = [{"type": "output_audio", "transcript": self.transcript}]
        return message_item(self.item_id, "assistant", content, status)

    def _response(self, status: str, output: list[Any], reason: str = "") -> dict[str, Any]:
        details: dict[str, Any] | None = None
        if status == "cancelled":
            details = {"type": "cancelled", "reason": reason}
        elif status == "failed":
            details = {"type": "failed", "error": {"type": "server_error", "code": "model_error"}}
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": output,
            "output_modalities": ["audio"],
            "conversation_id": None,
            "metadata": self._metadata,
            "usage": None,
        }
