"""The OpenAI Realtime protocol without any I/O: messages in, commands and events out.

``receive`` takes a client's message and returns commands for the session and events for the client, in order.
``handle`` takes a session event and returns events for the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from websockets.frames import CloseCode

from rejoinder.agent.recording.changes import RecordingChange
from rejoinder.agent.wires.commands import (
    Command,
    Configure,
    Forget,
    Record,
    RecordingTranscribed,
    Result,
    Truncated,
)
from rejoinder.agent.wires.failures import public_error
from rejoinder.agent.wires.long_messages import Long
from rejoinder.agent.wires.realtime.events import ServerEvent, event, failure, new_conversation
from rejoinder.agent.wires.realtime.input import InputBuffer
from rejoinder.agent.wires.realtime.items import Items
from rejoinder.agent.wires.realtime.messages import (
    AudioAppend,
    AudioClear,
    AudioCommit,
    ControlMessage,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    LongAudioAppend,
    RecordingStart,
    RecordingStop,
    ResponseCancel,
    ResponseCreate,
    ResponseParams,
    SessionUpdate,
)
from rejoinder.agent.wires.realtime.reading import UnreadableMessage, read_message
from rejoinder.agent.wires.realtime.responses import ReplyEvent, Responses
from rejoinder.agent.wires.realtime.restoring import VERSION, Restoration, restoration, saved_entries
from rejoinder.agent.wires.realtime.settings import SessionSettings
from rejoinder.agent.wires.voices import DEFAULT_VOICE
from rejoinder.agent.wires.wire import Answers, Goodbye
from rejoinder.pipeline import (
    BudgetReached,
    EndOfTurn,
    Entry,
    Event,
    NobodySpoke,
    NothingSaid,
    Options,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    ProtocolError,
    SpeechStarted,
)
from rejoinder.pipeline.call_timer import longest_call


class Realtime:
    """The server's side of the protocol for one conversation.

    options: of the session, before the client configures it. model: the name that the session object shows.
    tracing: whether to send ``rejoinder.trace``. can_call: whether the language model can call tools. voice:
    the name of the server's voice. conversation: the id, "" for a new one. It cannot be guessed: a client
    that has it may resume the conversation. session: the session's id, "" for a new one. wanted: the id of a
    conversation that the client asked to resume and that does not exist, else "".
    """

    flush_after: float | None = None
    name = "realtime"
    playing = False

    def __init__(
        self,
        options: Options,
        model: str = "default",
        tracing: bool = False,
        can_call: bool = False,
        voice: str = DEFAULT_VOICE,
        conversation: str = "",
        session: str = "",
    ) -> None:
        self._settings = SessionSettings(options, model, can_call, voice, session)
        self.conversation = conversation or new_conversation()
        self.wanted = ""
        self.items = Items()
        self.responses = Responses(self.items, tracing, self.conversation)
        self._input = InputBuffer()
        self._restoration: Restoration | None = None

    @property
    def id(self) -> str:
        """The session's identifier, which the client receives."""
        return self._settings.id

    @property
    def empty(self) -> bool:
        """Whether the conversation has no items and no response.

        Where the client ends turns: no audio either.
        """
        unheard = self._input.empty or self.options().detect_turns
        return self.items.last is None and self.responses.none and unheard

    def adopt(self, options: Options) -> None:
        """Replace the server's options, before the client has changed any."""
        self._settings.adopt(options)

    def options(self) -> Options:
        """Return the session's options as the client has configured them."""
        return self._settings.options()

    def open(self) -> Answers:
        """Return the first events of the call."""
        if self._restoration:
            return self._restoration.begin(self.conversation, self.greet(), self.items)
        if not self.wanted:
            return self.greet()
        reason = f"there is no conversation {self.wanted} to go on with: this is a new one"
        return [
            *self.greet(),
            failure(ProtocolError(reason, "conversation_not_found", "conversation_id"), None),
        ]

    def greet(self) -> list[ServerEvent]:
        """Return the first events on a socket: the session as it is configured, and its conversation."""
        conversation = {"id": self.conversation, "object": "realtime.conversation"}
        return [
            event("session.created", session=self._settings.describe()),
            event("conversation.created", conversation=conversation),
        ]

    def prepare(self, session: dict[str, Any]) -> dict[str, Any]:
        """Update the session, before the call or in it; return the whole session object.

        Raises ProtocolError.
        """
        self._settings.update(session)
        listened, self.responses.format = self._settings.formats()
        self._input.use(listened)
        return self._settings.describe()

    def saved(self, entries: Sequence[Entry]) -> dict[str, Any]:
        """Return the state of the conversation for another process. entries: its history.

        It is valid until the next message or event, and shares its parts with the conversation.
        """
        return {
            "version": VERSION,
            "session": self.id,
            "config": self._settings.saved(),
            "items": self.items.saved(),
            "entries": saved_entries(entries),
            "open": self.responses.open,
            "due": self._restoration.due if self._restoration else [],
        }

    def restore(
        self, saved: Mapping[str, Any], reply: Mapping[str, Any], item: str = "", played_ms: int | None = None
    ) -> None:
        """Go on with a conversation of another process, instead of a new one; call it before ``open``.

        reply: the position of its newest reply. item, played_ms: as in ``ResumeRequest``. Raises
        ProtocolError where this server refuses its settings; LookupError, TypeError and ValueError for what
        is not a saved conversation.
        """
        if saved["version"] != VERSION:
            raise ValueError(f"it has form {saved['version']}, and this server reads form {VERSION}")
        self.prepare(saved["config"])
        answers = self.options().create_response
        self._restoration = restoration(saved, reply, item, played_ms, answers)

    # --- from the client --------------------------------------------------------------------------------

    def receive(self, frame: str | bytes | Long, more: bool = False) -> Answers:
        """Take one message. An error in it becomes an error event, and the session goes on.

        more: whether the next message is here already; audio may then be held back until that one is taken.
        """
        if isinstance(frame, bytes) or (isinstance(frame, Long) and frame.binary):
            reason = "send JSON in text messages; audio goes inside it as base64"
            return [*self._input.held(), failure(ProtocolError(reason, "invalid_json"), None)]
        try:
            message = read_message(frame)
        except UnreadableMessage as wrong:
            return [*self._input.held(), failure(wrong, wrong.event_id)]
        before: list[Command | ServerEvent] = []
        try:
            if isinstance(message, AudioAppend):
                return self._input.append(message.audio, more)
            before += self._input.held()
            return [*before, *self._answer(message)]
        except ProtocolError as error:
            return [*before, *self._input.held(), failure(error, message.event_id)]

    def read_more(self) -> Answers:
        """Return the next piece of the audio in a long message."""
        return self._input.read_more()

    def _answer(self, message: ControlMessage | LongAudioAppend) -> Answers:
        match message:
            case SessionUpdate(session=update):
                updated = event("session.updated", session=self.prepare(update))
                return [Configure(self.options()), updated]
            case LongAudioAppend(audio):
                return self._input.append_long(audio)
            case AudioCommit():
                return [self._input.commit()]
            case AudioClear():
                self._input.clear()
                return [Forget(), event("input_audio_buffer.cleared")]
            case ItemCreate():
                return self.items.create(message, self._input.recording)
            case ItemDelete(item_id=id_):
                return self.items.delete(id_)
            case ItemRetrieve(item_id=id_):
                item = self.items.get(id_, "item_retrieve_invalid_item_id", "retrieving")
                return [event("conversation.item.retrieved", item=item)]
            case ItemTruncate():
                return self.responses.truncate(message)
            case ResponseCreate(response=given):
                params = given or ResponseParams()
                self._settings.check(params)
                return [self.responses.create(params, self._settings.tools(params))]
            case ResponseCancel():
                return self.responses.cancel(message)
            case RecordingStart(announce=announce):
                return [Record(True, announce)]
            case RecordingStop():
                return [Record(False)]

    # --- from the session -------------------------------------------------------------------------------

    def handle(self, happened: Event | Result) -> Answers:
        """Return what follows from a session event, or from the result of a command."""
        if isinstance(happened, ReplyEvent):
            events = self.responses.handle(happened)
            return [*events, *self._restoration.follow(happened)] if self._restoration else events
        match happened:
            case SpeechStarted(at, interrupts):
                started = self._input.speech_started(at, self.options().endpointing.padding_ms)
                # Clients drop their audio at this event: they do not get it where the agent must be heard.
                return started if interrupts or not self.options().interrupt_response else []
            case OverlapStarted():
                return self._playing("rejoinder.output_paused")
            case OverlapEnded(text):
                return self._playing("rejoinder.output_resumed", transcript=text)
            case PartialTranscript(agreed=agreed):
                return self._input.partial(agreed)
            case NobodySpoke(since, at):
                return self._input.timed_out(since, at, self.items)
            case NothingSaid(at, error):
                self.responses.turn_ended()
                unheard = public_error(error) if error else None
                return self._input.turn_ended("", at, self.items, unheard)
            case EndOfTurn(text, at):
                self.responses.turn_ended()
                return self._input.turn_ended(text, at, self.items)
            case Truncated(turn, text) if text is not None:
                self.responses.truncated(turn, text)
            case RecordingTranscribed():
                return self.items.transcribed(happened)
            case BudgetReached(scope, share, over):
                return [event("rejoinder.budget", scope=scope, share=share, over=over)]
            case RecordingChange(id_, True):
                return [event("rejoinder.recording.started", recording_id=id_)]
            case RecordingChange(id_, False, reason):
                return [event("rejoinder.recording.stopped", recording_id=id_, reason=reason)]
        return []

    def flush(self) -> list[ServerEvent]:
        """Return nothing: this wire holds no messages back."""
        return []

    def goodbye(self, reason: str, code: str) -> Goodbye:
        """Return OpenAI's error for a call that has reached its limit: clients look for its code."""
        longest = self.options().max_call_s
        minutes, seconds = divmod(longest, 60.0)
        lasted = f"{longest:g} seconds" if seconds else f"{minutes:g} minutes"
        if reason == longest_call(longest):
            reason = f"Your session hit the maximum duration of {lasted}."
        return Goodbye(reason, CloseCode.GOING_AWAY, [failure(ProtocolError(reason, code), None)])

    def _playing(self, type_: str, **fields: Any) -> list[ServerEvent]:
        """Return the event that pauses or resumes playback. Only clients that hold their audio get it.

        Standard clients clear their audio at speech_started and truncate its item, which cannot be undone.
        """
        if not self.options().holds_audio:
            return []
        return [event(type_, item_id=self.responses.last_spoken, **fields)]
