"""The OpenAI Realtime protocol without any I/O: messages in, commands and events out.

``receive`` takes what the client sent and returns commands for the session and events for the client, in
order; ``tell`` turns what happened in the session into events for the client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rejoinder.agent.commands import (
    AddText,
    Command,
    Configure,
    Forget,
    Interrupt,
    Respond,
    Truncate,
)
from rejoinder.agent.realtime_events import (
    ResponseEvents,
    ServerEvent,
    event,
    failure,
    item_added,
    message_item,
    new_id,
)
from rejoinder.agent.realtime_input import InputBuffer
from rejoinder.agent.realtime_items import Items
from rejoinder.agent.realtime_messages import (
    PCM_RATE,
    AudioAppend,
    AudioClear,
    AudioCommit,
    ClientMessage,
    ItemCreate,
    ItemRetrieve,
    ItemTruncate,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
    event_id,
    parse,
)
from rejoinder.agent.realtime_settings import SessionSettings
from rejoinder.pipeline import (
    EndOfTurn,
    Event,
    NobodySpoke,
    NothingSaid,
    Options,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ProtocolError,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    Trace,
    TurnTraced,
)


class Realtime:
    """One connection's side of the protocol.

    options: of a session that nobody has configured yet. tracing: whether to send ``rejoinder.trace``.
    """

    def __init__(self, options: Options, model: str = "default", tracing: bool = False) -> None:
        self._settings = SessionSettings(options, model)
        self._tracing = tracing
        self._items = Items()
        self._input = InputBuffer()
        self._response: ResponseEvents | None = None
        self._asked = False
        self._cancelling = False
        self._metadata: dict[str, str] | None = None

    def options(self) -> Options:
        """Return the session's options as the client has configured them."""
        return self._settings.options()

    def open(self) -> list[ServerEvent]:
        """Return what the client is told before it has said anything."""
        return [event("session.created", session=self._settings.describe())]

    # --- from the client --------------------------------------------------------------------------------

    def receive(self, text: str) -> Iterable[Command | ServerEvent]:
        """Take one text message; what is wrong with it becomes an error event, and the session goes on.

        What is returned is to be used before the next message is taken.
        """
        client_event = None
        try:
            message = parse(text)
            client_event = message.event_id
            return self._received(message)
        except ProtocolError as error:
            return [failure(error, client_event or event_id(text))]

    def _received(self, message: ClientMessage) -> Iterable[Command | ServerEvent]:
        match message:
            case SessionUpdate(session=update):
                self._settings.update(update)
                updated = event("session.updated", session=self._settings.describe())
                return [Configure(self.options()), updated]
            case AudioAppend():
                return self._input.append(message.pcm())
            case AudioCommit():
                return [self._input.commit()]
            case AudioClear():
                self._input.clear()
                return [Forget(), event("input_audio_buffer.cleared")]
            case ItemCreate():
                return self._created(message)
            case ItemRetrieve(item_id=id_):
                return [event("conversation.item.retrieved", item=self._items.get(id_))]
            case ItemTruncate():
                return self._truncated(message)
            case ResponseCreate(response=params):
                return [self._asked_for(params.instructions if params else None, params)]
            case ResponseCancel():
                # Cancelling what is not there is a race that clients lose all the time: it is no error.
                active = self._response is not None or self._asked
                self._cancelling = active
                return [Interrupt()] if active else []

    def _created(self, message: ItemCreate) -> list[Command | ServerEvent]:
        given = message.item
        id_ = given.id or new_id("item")
        if id_ in self._items:
            raise ProtocolError(f"there is an item {id_} already", "item_exists", "item.id")
        if message.previous_item_id not in (None, self._items.last):
            reason = "items can be added at the end of the conversation only"
            raise ProtocolError(reason, "invalid_value", "previous_item_id")
        previous = self._items.last
        content = [part.model_dump() for part in given.content]
        item = self._items.keep(message_item(id_, given.role, content, "completed"))
        text = " ".join(part.text for part in given.content)
        return [AddText(given.role, text), *item_added(item, previous)]

    def _truncated(self, message: ItemTruncate) -> list[Command | ServerEvent]:
        response = self._items.spoken(message.item_id)
        if response is self._response and not self._cancelling:
            reason = "the response is in progress: cancel it first"
            raise ProtocolError(reason, "conversation_already_has_active_response", "item_id")
        sent_ms = math.ceil(response.sent_bytes * 1000 / (2 * PCM_RATE))
        if message.audio_end_ms > sent_ms:
            reason = f"only {sent_ms} ms of audio were sent, not {message.audio_end_ms}"
            raise ProtocolError(reason, "invalid_value", "audio_end_ms")
        done = event(
            "conversation.item.truncated",
            item_id=message.item_id,
            content_index=0,
            audio_end_ms=message.audio_end_ms,
        )
        return [Truncate(response.turn, message.audio_end_ms / 1000.0), done]

    def _asked_for(self, instructions: str | None, params: Any) -> Command:
        if self._response or self._asked:
            reason = "a response is in progress: cancel it, or wait until it is done"
            raise ProtocolError(reason, "conversation_already_has_active_response")
        self._asked = True
        self._metadata = params.metadata if params else None
        return Respond(instructions)

    # --- from the session -------------------------------------------------------------------------------

    def tell(self, happened: Event) -> list[ServerEvent]:
        """Return the events that tell the client what happened."""
        match happened:
            case SpeechStarted(at):
                return self._input.speech_started(at, self.options().endpointing.padding_ms)
            case OverlapStarted():
                return self._playing("rejoinder.output_paused")
            case OverlapEnded(text):
                return self._playing("rejoinder.output_resumed", transcript=text)
            case PartialTranscript(agreed=agreed):
                return self._input.heard_so_far(agreed)
            case NobodySpoke(since, at):
                return self._input.nobody_spoke(since, at, self._items)
            case NothingSaid(at):
                return self._turn_ended("", at)
            case EndOfTurn(text, at):
                return self._turn_ended(text, at)
            case ReplyStarted(turn):
                return self._begin(turn)
            case TurnTraced(trace):
                return self._traced(trace)
        if self._response is None or not isinstance(happened, ReplyText | ReplyAudio | ReplyDone):
            return []
        match happened:
            case ReplyText(text=text):
                return self._response.text(text)
            case ReplyAudio(chunk=chunk):
                return self._response.audio(chunk)
            case ReplyDone():
                return self._end(happened)

    def _playing(self, type_: str, **fields: Any) -> list[ServerEvent]:
        """Tell a client that holds its audio; others hear of an interruption when it is one.

        They cut what they play at speech_started and truncate its item, which cannot be taken back.
        """
        if not self.options().holds_audio:
            return []
        return [event(type_, item_id=self._items.last_spoken, **fields)]

    def _turn_ended(self, text: str, at: int) -> list[ServerEvent]:
        if self._cancelling and self._response is None:  # cancelled before it began: it never will
            self._asked, self._cancelling, self._metadata = False, False, None
        return self._input.turn_ended(text, at, self._items)

    def _begin(self, turn: int) -> list[ServerEvent]:
        self._response = self._items.begin(turn, self._metadata)
        self._asked, self._metadata = False, None
        return self._response.begin()

    def _end(self, done: ReplyDone) -> list[ServerEvent]:
        response, self._response = self._response, None
        assert response is not None
        events = []
        if done.status == "failed":
            events.append(failure(ProtocolError(done.error, "model_error"), None, "server_error"))
        reason = "client_cancelled" if self._cancelling else "turn_detected"
        self._cancelling = False
        events += response.end(done.status, reason)
        self._items.settle(response, done.heard)
        return events

    def _traced(self, trace: Trace) -> list[ServerEvent]:
        if not self._tracing or self._response is None:
            return []
        return self._response.trace(trace.budget(), trace.counts)

    def heard(self, turn: int, text: str) -> None:
        """Note what the user heard of a reply by the client's account: what its item holds from now on."""
        self._items.heard(turn, text)
