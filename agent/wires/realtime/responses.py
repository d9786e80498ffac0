"""The responses of one conversation: requested, in progress, and how much of each was heard."""

from __future__ import annotations

from collections import OrderedDict

from rejoinder.agent.wires.commands import Interrupt, Respond, Truncate
from rejoinder.agent.wires.failures import kind_of
from rejoinder.agent.wires.realtime.events import ServerEvent, event, failure
from rejoinder.agent.wires.realtime.formats import PCM, Format
from rejoinder.agent.wires.realtime.items import MAX_ITEMS, Items
from rejoinder.agent.wires.realtime.messages import ItemTruncate, ResponseCancel, ResponseParams
from rejoinder.agent.wires.realtime.response import Response
from rejoinder.agent.wires.realtime.tools import most_tokens
from rejoinder.pipeline import (
    ProtocolError,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    Tools,
    TurnTraced,
)
from rejoinder.pipeline.replying.out_of_band import MAX_OUT_OF_BAND

ReplyEvent = ReplyStarted | ReplyText | ReplyAudio | ReplyCalled | ReplyDone | TurnTraced


class Responses:
    """The conversation has one response at a time. Others are out of band ("beside" the conversation).

    format: the audio format of new responses.
    last_spoken: the id of the newest item that a response of the conversation speaks or spoke.
    """

    def __init__(self, items: Items, tracing: bool, conversation: str) -> None:
        self.format: Format = PCM
        self.last_spoken: str | None = None
        self._items = items
        self._tracing = tracing
        self._conversation = conversation
        self._tag = 0
        self._requested: dict[int, ResponseParams] = {}
        self._live: dict[int, Response] = {}
        self._spoken: OrderedDict[str, Response] = OrderedDict()
        self._cancelling = False

    @property
    def newest(self) -> Response | None:
        """The conversation's response in progress, else the one that spoke last, else None."""
        live = next((one for one in self._live.values() if not one.beside), None)
        return live or (self._spoken.get(self.last_spoken) if self.last_spoken else None)

    @property
    def none(self) -> bool:
        """Whether no response is requested or in progress, and none has spoken."""
        return not self._requested and not self._live and self.newest is None

    @property
    def open(self) -> list[str]:
        """The ids of the responses in progress, also of those out of band."""
        return [response.id for response in self._live.values()]

    def speaking(self, item: str) -> Response | None:
        """Return the conversation's response that speaks or spoke an item, None for other items."""
        return self._spoken.get(item)

    def is_live(self, response: Response) -> bool:
        """Return whether a response is in progress."""
        return response.turn in self._live

    # --- from the client --------------------------------------------------------------------------------

    def create(self, params: ResponseParams, tools: Tools | None) -> Respond:
        """Request a response. Raises ProtocolError where one is in progress, or too many out of band are."""
        beside = params.conversation == "none"
        if beside and sum(self._unfinished()) >= MAX_OUT_OF_BAND:
            reason = f"{MAX_OUT_OF_BAND} responses without a conversation are in progress"
            raise ProtocolError(reason, "too_many_responses")
        if not beside and not all(self._unfinished()):
            reason = "Conversation already has an active response in progress: cancel it, or wait for its end"
            raise ProtocolError(reason, "conversation_already_has_active_response")
        entries = None if params.input is None else self._items.prompt(params.input)
        speaks = None if params.output_modalities is None else params.output_modalities == ["audio"]
        most = None if params.max_output_tokens is None else most_tokens(params.max_output_tokens)
        self._tag += 1
        self._requested[self._tag] = params
        return Respond(ReplyRequest(params.instructions, entries, speaks, tools, not beside, self._tag, most))

    def cancel(self, message: ResponseCancel) -> list[Interrupt]:
        """Stop a response. One that is already over is no error: clients often cancel too late."""
        for turn, response in self._live.items():
            if message.response_id == response.id and response.beside:
                return [Interrupt(turn)]
        named = message.response_id in (None, *(one.id for one in self._live.values()))
        if not named or all(self._unfinished()):
            return []
        self._cancelling = True
        return [Interrupt()]

    def truncate(self, message: ItemTruncate) -> list[Truncate | ServerEvent]:
        """Take the client's report of how much of a message was heard. Raises ProtocolError.

        Truncating a message in progress also cancels its response: clients that interrupt send nothing else.
        """
        response = self._spoken.get(message.item_id)
        if response is None or message.item_id not in self._items:
            self._items.get(message.item_id, "item_truncate_invalid_item_id", "truncating")
            reason = "Only model output audio messages can be truncated"
            raise ProtocolError(reason, "item_truncate_invalid_item_id", "item_id")
        audio_end_ms = message.audio_end_ms + response.skipped_ms
        if audio_end_ms > response.sent_ms:
            sent, wanted = response.sent_ms - response.skipped_ms, message.audio_end_ms
            reason = f"Audio content of {sent}ms is already shorter than {wanted}ms"
            raise ProtocolError(reason, "invalid_value", "audio_end_ms")
        done = event(
            "conversation.item.truncated",
            item_id=message.item_id,
            content_index=0,
            audio_end_ms=message.audio_end_ms,
        )
        if response.turn in self._live:
            self._cancelling = True
        return [Truncate(response.turn, audio_end_ms / 1000.0), done]

    # --- from the session -------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        """Record the end of the user's turn. A response that was cancelled before it began is dropped."""
        if self._cancelling and not any(not response.beside for response in self._live.values()):
            self._requested = {tag: one for tag, one in self._requested.items() if one.conversation == "none"}
            self._cancelling = False

    def handle(self, happened: ReplyEvent) -> list[ServerEvent]:
        """Return the client's events for a session event about a response."""
        if isinstance(happened, ReplyStarted):
            return self._begin(happened)
        turn = happened.trace.turn if isinstance(happened, TurnTraced) else happened.turn
        response = self._live.get(turn)
        if response is None:
            return []
        match happened:
            case ReplyAudio(chunk=chunk):
                events = response.audio(chunk.pcm, chunk.rate)
            case ReplyText(text=text):
                events = response.text(text)
            case ReplyCalled(call=call):
                return response.called(call)
            case ReplyDone():
                return self._end(response, happened)
            case TurnTraced(trace):
                return response.trace(trace) if self._tracing else []
        if response.message != self.last_spoken and response.speaks and not response.beside:
            self._remember(response)
        return events

    def truncated(self, turn: int, text: str) -> None:
        """Record the part of a reply that the client reports as heard. The reply's item keeps only that."""
        for response in self._spoken.values():
            if response.turn == turn:
                response.corrected = True
                response.keep_heard(text)

    def _unfinished(self) -> list[bool]:
        """Return, for each response requested or in progress, whether it is out of band."""
        requested = [params.conversation == "none" for params in self._requested.values()]
        return requested + [response.beside for response in self._live.values()]

    def _begin(self, started: ReplyStarted) -> list[ServerEvent]:
        params = self._requested.pop(started.tag, None) or ResponseParams()
        beside = params.conversation == "none"
        items, conversation = (None, None) if beside else (self._items, self._conversation)
        format_ = params.format or self.format
        response = Response(started.turn, items, started.speaks, format_, params.metadata, conversation)
        self._live[started.turn] = response
        return response.begin()

    def _remember(self, response: Response) -> None:
        """Remember which response speaks an item: the client may later report how much of it was heard."""
        assert response.message is not None
        self.last_spoken = response.message
        self._spoken[self.last_spoken] = response
        if len(self._spoken) > MAX_ITEMS:
            self._spoken.popitem(last=False)

    def _end(self, response: Response, done: ReplyDone) -> list[ServerEvent]:
        del self._live[response.turn]
        events = []
        if done.status == "failed":
            code = done.code or "model_error"
            events.append(failure(ProtocolError(done.error, code), None, kind_of(code)))
        match done.status:
            case "failed":
                reason = done.code
            case "incomplete":
                reason = "content_filter" if done.refused else ""
            case _:
                reason = "client_cancelled" if self._cancelling or response.beside else "turn_detected"
        if not response.beside:
            self._cancelling = False
        events += response.end(done.status, reason, done.usage, done.error)
        if not response.corrected:
            response.keep_heard(done.heard)
        return events
