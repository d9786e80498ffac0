"""The OpenAI Realtime protocol without any I/O: messages in, commands and events out.

``receive`` takes what the client sent and returns commands for the session and events for the client, in
order; ``tell`` turns what happened in the session into events for the client.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import soxr

from rejoinder.agent.commands import (
    AddText,
    Command,
    Configure,
    EndTurn,
    Forget,
    Hear,
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
    user_turn,
)
from rejoinder.agent.realtime_messages import (
    MAX_ID,
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
    SemanticVad,
    ServerVad,
    SessionConfig,
    SessionUpdate,
    merge,
    parse,
)
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    EndOfTurn,
    Event,
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
    TurnTraced,
)

MAX_ITEMS = 400
"""Items that can be retrieved and truncated; the oldest are forgotten."""
PATIENCE = {"high": (0.5, 1_400), "medium": (5.0, 2_200), "low": (15.0, 3_000)}
"""Patience, and the longest wait in milliseconds, for each eagerness; auto is as configured."""


class Realtime:
    """One connection's side of the protocol.

    options: of a session that nobody has configured yet. tracing: whether to send ``rejoinder.trace``.
    """

    def __init__(self, options: Options, model: str = "default", tracing: bool = False) -> None:
        self._defaults = options
        self._tracing = tracing
        self._id = new_id("sess")
        self._config = SessionConfig(model=model, instructions=options.instructions)
        self._to_session = _resampler(PCM_RATE, RATE)
        self._from_voice: soxr.ResampleStream | None = None
        self._items: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._responses: OrderedDict[str, ResponseEvents] = OrderedDict()
        self._response: ResponseEvents | None = None
        self._asked = False
        self._cancelling = False
        self._metadata: dict[str, str] | None = None
        self._speech: str | None = None
        self._speech_at = 0
        self._partial = ""
        self._uncommitted = 0
        self._ending = False

    def options(self) -> Options:
        """Return the session's options as the client has configured them."""
        detection = self._config.audio.input.turn_detection
        endpointing = self._defaults.endpointing
        if isinstance(detection, ServerVad):
            endpointing = replace(
                endpointing,
                threshold=detection.threshold,
                release=max(detection.threshold - 0.15, detection.threshold / 2),
                padding_ms=detection.prefix_padding_ms,
                min_wait_ms=detection.silence_duration_ms,
                max_wait_ms=detection.silence_duration_ms,
            )
        elif isinstance(detection, SemanticVad) and detection.eagerness != "auto":
            patience, longest = PATIENCE[detection.eagerness]
            endpointing = replace(
                endpointing, patience=patience, max_wait_ms=max(longest, endpointing.min_wait_ms)
            )
        return Options(
            instructions=self._config.instructions,
            examples=self._defaults.examples
            if self._config.instructions == self._defaults.instructions
            else (),
            endpointing=endpointing,
            detect_turns=detection is not None,
            create_response=detection is not None and detection.create_response,
            interrupt_response=detection is not None and detection.interrupt_response,
            holds_audio=self._defaults.holds_audio,
            speculate=self._defaults.speculate,
        )

    def open(self) -> list[ServerEvent]:
        """Return what the client is told before it has said anything."""
        return [event("session.created", session=self._session())]

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
            return [failure(error, client_event or _event_id(text))]

    def _received(self, message: ClientMessage) -> Iterable[Command | ServerEvent]:
        match message:
            case SessionUpdate(session=update):
                self._config = merge(self._config, update)
                return [Configure(self.options()), event("session.updated", session=self._session())]
            case AudioAppend(audio=audio):
                return self._heard(self._decoded(audio))
            case AudioCommit():
                return [self._commit()]
            case AudioClear():
                self._uncommitted = 0
                return [Forget(), event("input_audio_buffer.cleared")]
            case ItemCreate():
                return self._created(message)
            case ItemRetrieve(item_id=id_):
                return [event("conversation.item.retrieved", item=self._item(id_))]
            case ItemTruncate():
                return self._truncated(message)
            case ResponseCreate(response=params):
                return [self._asked_for(params.instructions if params else None, params)]
            case ResponseCancel():
                # Cancelling what is not there is a race that clients lose all the time: it is no error.
                active = self._response is not None or self._asked
                self._cancelling = active
                return [Interrupt()] if active else []

    def _decoded(self, audio: str) -> bytes:
        try:
            pcm = base64.b64decode(audio, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"audio: not base64: {error}", "invalid_value", "audio") from None
        if len(pcm) % 2:
            reason = f"audio: 16-bit samples need an even number of bytes, not {len(pcm)}"
            raise ProtocolError(reason, "invalid_value", "audio")
        self._uncommitted += len(pcm)
        return pcm

    def _heard(self, pcm: bytes) -> Iterable[Command]:
        """Resample minutes of audio a second at a time, as it is taken: nobody else waits for all of it."""
        for piece in AudioChunk(pcm, PCM_RATE).slices(PCM_RATE):
            yield Hear(_resample(self._to_session, piece, last=False))

    def _commit(self) -> Command:
        if not self._uncommitted:
            raise ProtocolError("there is no audio to commit", "input_audio_buffer_commit_empty")
        if self._ending:
            reason = "the audio committed before is still being recognised: commit when its item was added"
            raise ProtocolError(reason, "input_audio_buffer_commit_active")
        self._uncommitted = 0
        self._ending = True
        return EndTurn()

    def _created(self, message: ItemCreate) -> list[Command | ServerEvent]:
        given = message.item
        id_ = given.id or new_id("item")
        if id_ in self._items:
            raise ProtocolError(f"there is an item {id_} already", "item_exists", "item.id")
        if message.previous_item_id not in (None, self._last()):
            reason = "items can be added at the end of the conversation only"
            raise ProtocolError(reason, "invalid_value", "previous_item_id")
        previous = self._last()
        content = [part.model_dump() for part in given.content]
        item = self._keep(message_item(id_, given.role, content, "completed"))
        text = " ".join(part.text for part in given.content)
        return [AddText(given.role, text), *item_added(item, previous)]

    def _truncated(self, message: ItemTruncate) -> list[Command | ServerEvent]:
        response = self._responses.get(message.item_id)
        if response is None:
            raise ProtocolError(f"there is no spoken item {message.item_id}", "item_not_found", "item_id")
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
                self._speech, self._speech_at, self._partial = new_id("item"), at, ""
                start = max(0, at * 1000 // RATE - self.options().endpointing.padding_ms)
                return [
                    event("input_audio_buffer.speech_started", item_id=self._speech, audio_start_ms=start)
                ]
            case OverlapStarted():
                return self._playing("rejoinder.output_paused")
            case OverlapEnded(text):
                return self._playing("rejoinder.output_resumed", transcript=text)
            case PartialTranscript(agreed=agreed):
                return self._heard_so_far(agreed)
            case NothingSaid(at):
                return self._turn_ended("", at)
            case EndOfTurn(text, at):
                return self._turn_ended(text, at)
            case ReplyStarted(turn):
                return self._begin(turn)
            case TurnTraced(trace):
                return self._traced(trace.budget())
        if self._response is None or not isinstance(happened, ReplyText | ReplyAudio | ReplyDone):
            return []
        match happened:
            case ReplyText(text=text):
                return self._response.text(text)
            case ReplyAudio(chunk=chunk):
                return self._response.audio(self._voice(chunk))
            case ReplyDone():
                return self._end(happened)

    def _playing(self, type_: str, **fields: Any) -> list[ServerEvent]:
        """Tell a client that holds its audio; others hear of an interruption when it is one.

        They cut what they play at speech_started and truncate its item, which cannot be taken back.
        """
        if not self._defaults.holds_audio:
            return []
        return [event(type_, item_id=next(reversed(self._responses), None), **fields)]

    def _heard_so_far(self, agreed: str) -> list[ServerEvent]:
        delta = agreed[len(self._partial) :]
        if not delta or not self._speech:
            return []
        self._partial = agreed
        type_ = "conversation.item.input_audio_transcription.delta"
        return [event(type_, item_id=self._speech, content_index=0, delta=delta)]

    def _turn_ended(self, text: str, at: int) -> list[ServerEvent]:
        """Tell of the end of the user's turn; noise without words makes an item too, but an empty one."""
        events = []
        spoken, id_, self._speech = self._speech, self._speech or new_id("item"), None
        if spoken:  # else the client committed what was no speech, or holds its own button
            stopped = event("input_audio_buffer.speech_stopped", item_id=id_, audio_end_ms=at * 1000 // RATE)
            events.append(stopped)
        previous = self._last()
        item = message_item(id_, "user", [{"type": "input_audio", "transcript": text}], "completed")
        seconds = max(0.0, (at - self._speech_at) / RATE)
        self._speech_at = at
        if not self._ending:  # a commit has counted already, and what came since is the next one's
            self._uncommitted = 0
        self._ending = False
        if self._cancelling and self._response is None:  # cancelled before it began: it never will
            self._asked, self._cancelling, self._metadata = False, False, None
        return events + user_turn(self._keep(item), previous, seconds, text)

    def _begin(self, turn: int) -> list[ServerEvent]:
        self._response = ResponseEvents(turn, self._last(), self._metadata)
        self._asked, self._metadata, self._from_voice = False, None, None
        self._responses[self._response.item_id] = self._response
        self._keep(self._response.item("in_progress"))
        if len(self._responses) > MAX_ITEMS:
            self._responses.popitem(last=False)
        return self._response.begin()

    def _voice(self, chunk: AudioChunk, last: bool = False) -> bytes:
        if chunk.rate == PCM_RATE:
            return chunk.pcm
        if self._from_voice is None:
            self._from_voice = _resampler(chunk.rate, PCM_RATE)
        return _resample(self._from_voice, chunk, last)

    def _end(self, done: ReplyDone) -> list[ServerEvent]:
        response, self._response = self._response, None
        assert response is not None
        events = []
        if done.status == "completed" and self._from_voice is not None:
            events += response.audio(_resample(self._from_voice, AudioChunk(b"", PCM_RATE), last=True))
        if done.status == "failed":
            events.append(failure(ProtocolError(done.error, "model_error"), None, "server_error"))
        reason = "client_cancelled" if self._cancelling else "turn_detected"
        self._cancelling = False
        events += response.end(done.status, reason)
        if not response.corrected:
            self._rewrite(response, done.heard)
        return events

    def _traced(self, budget: list[tuple[str, float]]) -> list[ServerEvent]:
        if not self._tracing or self._response is None or self._response.traced:
            return []
        self._response.traced = True
        parts = [{"name": name, "ms": round(ms, 1)} for name, ms in budget]
        total = round(sum(ms for _, ms in budget), 1)
        trace = event(
            "rejoinder.trace",
            turn=self._response.turn,
            response_id=self._response.id,
            total_ms=total,
            parts=parts,
        )
        return [trace] if parts else []

    def heard(self, turn: int, text: str) -> None:
        """Note what the user heard of a reply by the client's account: what its item holds from now on."""
        for response in self._responses.values():
            if response.turn == turn:
                response.corrected = True
                self._rewrite(response, text)

    def _rewrite(self, response: ResponseEvents, text: str) -> None:
        response.cut = response.cut or text != response.transcript
        response.transcript = text
        self._keep(response.item("incomplete" if response.cut else "completed"))

    # --- items ------------------------------------------------------------------------------------------

    def _session(self) -> dict[str, Any]:
        return {"id": self._id, "object": "realtime.session", **self._config.model_dump()}

    def _keep(self, item: dict[str, Any]) -> dict[str, Any]:
        self._items[item["id"]] = item
        if len(self._items) > MAX_ITEMS:
            self._items.popitem(last=False)
        return item

    def _last(self) -> str | None:
        return next(reversed(self._items), None)

    def _item(self, id_: str) -> dict[str, Any]:
        if id_ not in self._items:
            raise ProtocolError(f"there is no item {id_}", "item_not_found", "item_id")
        return self._items[id_]


def _resampler(rate: float, wanted: float) -> soxr.ResampleStream:
    """Return a stream with soxr's variable-rate filter: the same quality, 10 ms of delay, not 37."""
    return soxr.ResampleStream(rate, wanted, 1, dtype="int16", vr=True)


def _resample(stream: soxr.ResampleStream, chunk: AudioChunk, last: bool) -> bytes:
    return bytes(stream.resample_chunk(chunk.int16(), last=last).astype("<i2").tobytes())


def _event_id(text: str) -> str | None:
    """Return the client's id of a message that could not be parsed, if it has one."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    given = message.get("event_id") if isinstance(message, dict) else None
    return given if isinstance(given, str) and len(given) <= MAX_ID else None
