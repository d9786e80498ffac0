"""One response of the OpenAI Realtime protocol: its events, in the order that clients expect."""

from __future__ import annotations

from typing import Any

import pybase64

from rejoinder.agent.wires import g711
from rejoinder.agent.wires.failures import MAX_MESSAGE, kind_of
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.realtime.events import ServerEvent, event, kept_item, message_item, usage_fields
from rejoinder.agent.wires.realtime.formats import LAWS, PCM, Format, Pcm, length_ms
from rejoinder.agent.wires.realtime.items import Items
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.pipeline import ToolCall, Trace, Usage

TEXT_PART = "text"
"""Modality of a written response."""
AUDIO_PART = "audio"
"""Modality of a spoken response."""


class Response:
    """A response: at most one message, spoken or written, and then tool calls.

    items: the conversation that its items go to, None for an out-of-band response. beside: whether it is out
    of band. message: the id of its message, None before it begins. cut: whether the user heard less than was
    said. shortened: whether the token limit ended it. corrected: whether the client reported how much was
    heard. skipped_ms: milliseconds of audio that a resumed client is not sent again; its positions count from
    there.
    """

    def __init__(
        self,
        turn: int,
        items: Items | None,
        speaks: bool = True,
        format_: Format = PCM,
        metadata: dict[str, str] | None = None,
        conversation: str | None = None,
    ) -> None:
        self.turn = turn
        self.id = new_id("resp")
        self.message: str | None = None
        self.speaks = speaks
        self.beside = items is None
        self.transcript = ""
        self.corrected = self.cut = self.shortened = False
        self.skipped_ms = 0
        self._items = items
        self._format = format_
        self._metadata = metadata
        self._conversation = conversation
        self._output: list[dict[str, Any]] = []
        self._previous: str | None = None
        self._open = False
        self._trace: Trace | None = None
        self._seen: tuple[int, float | None] | None = None
        self._sent_bytes = 0
        self._resampler: Resampler | None = None

    @property
    def sent_ms(self) -> int:
        """Milliseconds of audio sent so far."""
        return length_ms(self._sent_bytes, self._format)

    def begin(self) -> list[ServerEvent]:
        """Return the event that begins the response."""
        return [event("response.created", response=self._response("in_progress"))]

    def again(self) -> list[ServerEvent]:
        """Return the events that repeat the response and its text so far, for a client that kept none."""
        begun = self.begin()
        if self.message is None:
            return begun
        name = "output_audio_transcript" if self.speaks else "output_text"
        delta = event(f"response.{name}.delta", **self._place(), delta=self.transcript)
        return [*begun, *self._announced(), *([delta] if self.transcript else [])]

    def length_ms(self, delta: str) -> int:
        """Return the duration of one audio delta (base64), in milliseconds."""
        return length_ms(len(delta) * 3 // 4 - delta.count("="), self._format)

    def text(self, text: str) -> list[ServerEvent]:
        """Return the events for text: of the audio that follows, or of a written reply."""
        begun = self._begun()
        delta = f" {text}" if self.transcript and self.speaks else text
        self.transcript += delta
        name = "output_audio_transcript" if self.speaks else "output_text"
        return [*begun, event(f"response.{name}.delta", **self._place(), delta=delta)]

    def audio(self, pcm: bytes, rate: int) -> list[ServerEvent]:
        """Return the events for 16-bit audio, resampled to the rate of the wire. rate: in hertz."""
        begun = self._begun() if self.message is None else []
        if rate != self._format.sample_rate:
            self._resampler = self._resampler or Resampler(rate, self._format.sample_rate)
            pcm = self._resampler.feed(pcm)
        data = pcm if isinstance(self._format, Pcm) else g711.encode(pcm, LAWS[self._format.type])
        if not data:
            return begun
        self._sent_bytes += len(data)
        place = {"response_id": self.id, "item_id": self.message, "output_index": 0, "content_index": 0}
        delta = pybase64.b64encode(data).decode("ascii")
        return [*begun, event("response.output_audio.delta", **place, delta=delta)]

    def called(self, call: ToolCall) -> list[ServerEvent]:
        """Return the events for one complete tool call. It ends the message."""
        events = self._ended("completed")
        place = {"response_id": self.id, "output_index": len(self._output)}
        id_ = new_id("item")
        fields = {"type": "function_call", "call_id": call.id, "name": call.name}
        begun = kept_item(id_, "in_progress", {**fields, "arguments": ""})
        item = kept_item(id_, "completed", {**fields, "arguments": call.arguments})
        named = {**place, "item_id": id_, "call_id": call.id}
        self._output.append(item)
        previous = self._items.keep(item, ("call", call.id)) if self._items else None
        name = "response.function_call_arguments"
        return [
            *events,
            event("response.output_item.added", **place, item=begun),
            *self._in_conversation("added", begun, previous),
            event(f"{name}.delta", **named, delta=call.arguments),
            event(f"{name}.done", **named, name=call.name, arguments=call.arguments),
            event("response.output_item.done", **place, item=item),
            *self._in_conversation("done", item, previous),
        ]

    def end(
        self, status: str, reason: str = "turn_detected", usage: Usage | None = None, error: str = ""
    ) -> list[ServerEvent]:
        """Return the events that end the message and the response.

        status: completed, incomplete, cancelled or failed. reason: turn_detected or client_cancelled if it
        was cancelled; the error's code if it failed, "" for model_error. error: the message if it failed.
        OpenAI has no message there; with it a client can show the failure from this event alone.
        """
        closed = [*self._news(), *self._ended(status)]
        self.shortened = status == "incomplete"
        return [*closed, event("response.done", response=self._response(status, reason, usage, error))]

    def trace(self, trace: Trace) -> list[ServerEvent]:
        """Return the ``rejoinder.trace`` event: named parts of the latency, counts, language models.

        There is another one at the end of the response if its models or its cost have changed.
        """
        if self._trace is not None:
            return []
        self._trace = trace
        return self._news()

    def _news(self) -> list[ServerEvent]:
        """Return the trace, if it has something that the client has not seen."""
        if self._trace is None:
            return []
        trace, budget = self._trace, self._trace.budget()
        state = len(trace.models), trace.counts.get("cost")
        if not budget or state == self._seen:
            return []
        self._seen = state
        parts = [{"name": name, "ms": round(ms, 1)} for name, ms in budget]
        total = round(sum(ms for _, ms in budget), 1)
        about = {"turn": self.turn, "response_id": self.id, "total_ms": total}
        models: dict[str, Any] = {"models": list(trace.models)} if trace.models else {}
        if trace.route:
            models["route"] = dict(trace.route)
        return [event("rejoinder.trace", **about, parts=parts, counts=trace.counts, **models)]

    def keep_heard(self, text: str) -> None:
        """Reduce the message and its item to the part that was heard."""
        if self.message is None or self._items is None:
            return
        if text.strip() != self.transcript.strip():
            self.cut, self.transcript = True, text
        self._items.rewrite(self._item("incomplete" if self.cut or self.shortened else "completed"))

    # --- the message ------------------------------------------------------------------------------------

    def _begun(self) -> list[ServerEvent]:
        if self.message is not None:
            return []
        self.message, self._open = new_id("item"), True
        if self._items:
            self._previous = self._items.keep(self._item("in_progress"), ("reply", self.turn))
        return self._announced()

    def _announced(self) -> list[ServerEvent]:
        assert self.message is not None
        item = message_item(self.message, "assistant", [], "in_progress")
        return [
            event("response.output_item.added", response_id=self.id, output_index=0, item=item),
            *self._in_conversation("added", item, self._previous),
            event("response.content_part.added", **self._place(), part=self._part("")),
        ]

    def _ended(self, status: str) -> list[ServerEvent]:
        if not self._open:
            return []
        self._open = False
        item = self._item("completed" if status == "completed" else "incomplete")
        self._output.append(item)
        if self.speaks:
            done = [
                *self._last_audio(status in ("completed", "incomplete")),
                event("response.output_audio.done", **self._place()),
                event("response.output_audio_transcript.done", **self._place(), transcript=self.transcript),
            ]
        else:
            done = [event("response.output_text.done", **self._place(), text=self.transcript)]
        return [
            *done,
            event("response.content_part.done", **self._place(), part=self._part(self.transcript)),
            event("response.output_item.done", response_id=self.id, output_index=0, item=item),
            *self._in_conversation("done", item, self._previous),
        ]

    def _last_audio(self, wanted: bool) -> list[ServerEvent]:
        """Return the events for the resampler's last audio, and free it: the response itself is kept."""
        resampler, self._resampler = self._resampler, None
        if resampler is None or not wanted:
            return []
        return self.audio(resampler.feed(b"", last=True), self._format.sample_rate)

    def _place(self) -> dict[str, Any]:
        return {"response_id": self.id, "item_id": self.message, "output_index": 0, "content_index": 0}

    def _part(self, words: str) -> dict[str, Any]:
        return (
            {"type": AUDIO_PART, "transcript": words} if self.speaks else {"type": TEXT_PART, "text": words}
        )

    def _item(self, status: str) -> dict[str, Any]:
        assert self.message is not None
        kind, words = ("output_audio", "transcript") if self.speaks else ("output_text", "text")
        return message_item(self.message, "assistant", [{"type": kind, words: self.transcript}], status)

    def _in_conversation(self, what: str, item: dict[str, Any], previous: str | None) -> list[ServerEvent]:
        if self._items is None:
            return []
        return [event(f"conversation.item.{what}", item=item, previous_item_id=previous)]

    def _response(
        self, status: str, reason: str = "", usage: Usage | None = None, error: str = ""
    ) -> dict[str, Any]:
        details: dict[str, Any] | None = None
        if status == "cancelled":
            details = {"type": "cancelled", "reason": reason}
        elif status == "incomplete":
            details = {"type": "incomplete", "reason": reason or "max_output_tokens"}
        elif status == "failed":
            code = reason or "model_error"
            cause = {"type": kind_of(code), "code": code, "message": error[:MAX_MESSAGE]}
            details = {"type": "failed", "error": cause}
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": list(self._output),
            "output_modalities": [AUDIO_PART if self.speaks else TEXT_PART],
            "conversation_id": self._conversation,
            "metadata": self._metadata,
            "usage": usage_fields(usage) if usage else None,
        }
