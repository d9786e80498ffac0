"""A telephone call without any I/O: a carrier's messages in, commands for the session and messages out.

``receive`` takes a carrier's message, ``handle`` a session event. ``flush`` sends held-back audio after a
short time without events. The marks that the carrier returns show how much the caller has heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rejoinder.agent.wires.commands import (
    AddText,
    Command,
    HangUp,
    Hear,
    Interrupt,
    Respond,
    Result,
    Truncate,
)
from rejoinder.agent.wires.failures import Unanswered
from rejoinder.agent.wires.long_messages import Long
from rejoinder.agent.wires.phone.asterisk import ChanWebsocket
from rejoinder.agent.wires.phone.carrier import Audio, Carrier, Digit, Frame, Json, Played, Stopped, too_long
from rejoinder.agent.wires.phone.keypad import Keypad
from rejoinder.agent.wires.phone.marks import EVERY_SECONDS, Marks
from rejoinder.agent.wires.phone.twilio import started
from rejoinder.agent.wires.phone.vonage import Vonage
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.agent.wires.wire import Goodbye
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    Event,
    Options,
    OverlapEnded,
    OverlapStarted,
    ProtocolError,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    to_pcm,
)
from rejoinder.pipeline.audio.resample import ToSession

MOST_FAILED = 2
"""Replies in a row that fail before the call ends. To a caller each one is an unexplained silence."""
FLUSH_SECONDS = 0.06
"""Audio too short for a message is sent after this time without more of it, in seconds: a clause has
ended."""
NUMBER = ("from", "caller", "caller-id", "caller_id")
"""Names of the parameter in which operators pass the caller's number."""

CALLED_NAMES = ("to", "called", "callee")
"""Names of the parameter in which operators pass the called number."""


def sniff(frame: Frame | Long) -> Carrier | None:
    """Return the carrier that a call's first messages identify, None while unknown. Raises ProtocolError."""
    if isinstance(frame, Long):
        raise too_long(frame.size)
    if isinstance(frame, bytes):
        raise ProtocolError("audio before the start of the stream")
    if frame.startswith("MEDIA_START "):
        raise ProtocolError("chan_websocket speaks plain text: add f(json) to the dial string")
    message = Json.parse(frame)
    match message.event:
        case "connected":
            return None
        case "start":
            return started(message)
        case "websocket:connected":
            return Vonage(message)
        case "MEDIA_START":
            return ChanWebsocket(message)
    raise ProtocolError(f"{message.event[:30]} before the start of the stream")


class Phone:
    """One call, from its start on.

    options: of its session. The instructions include the call's parameters.
    """

    def __init__(self, carrier: Carrier, options: Options) -> None:
        self.carrier = carrier
        self.options = replace(
            options,
            holds_audio=carrier.hold is not None,
            instructions=instructed(options.instructions, carrier),
            greeting="" if carrier.parameters.get("greet") == "false" else options.greeting,
        )
        self._to_session = ToSession(carrier.format_in.rate)
        self._received = 0
        self._keypad = Keypad()
        self._marks = Marks()
        self._resampler: Resampler | None = None
        self._turn: int | None = None
        self._waiting = bytearray()
        self._sent = self._made = self._marked = 0.0
        self._held: int | None = None
        self._failed = 0

    @property
    def name(self) -> str:
        """The carrier's name."""
        return self.carrier.name

    @property
    def id(self) -> str:
        """The carrier's identifier of the call, "" where it has none."""
        return self.carrier.id

    @property
    def called(self) -> str:
        """The number that the caller has called, from a parameter of the call, "" where none has it."""
        return self._given(CALLED_NAMES)

    def adopt(self, options: Options) -> None:
        """Replace the options of the session, before it begins."""
        self.options = options

    @property
    def number(self) -> str:
        """The caller's number, from the carrier or a parameter of the call, "" where neither has it."""
        return self.carrier.number or self._given(NUMBER)

    def _given(self, names: Sequence[str]) -> str:
        """Return the parameter of the call that has the first of these names, "" where none has one."""
        given = {name.lower(): value for name, value in self.carrier.parameters.items()}
        return next((given[name] for name in names if name in given), "")

    @property
    def flush_after(self) -> float | None:
        """Seconds without an event after which ``flush`` is called, None while no audio is held back."""
        return FLUSH_SECONDS if len(self._waiting) >= self.carrier.step else None

    @property
    def playing(self) -> bool:
        """Whether the caller has not heard all audio that was sent, as far as the carrier reports it."""
        return bool(self._waiting) or (self._marks.answered and self._marks.waiting)

    def open(self) -> list[Command | Frame]:
        """Return the command that begins the call: a reply, where the parameter ``greet`` is true.

        The session itself speaks a configured greeting instead.
        """
        greets = self.carrier.parameters.get("greet") == "true"
        return [Respond(None)] if greets and not self.options.greeting else []

    # --- from the carrier -------------------------------------------------------------------------------

    def receive(self, frame: Frame | Long, more: bool = False) -> list[Command | Frame]:
        """Take one message. Raises ProtocolError."""
        if isinstance(frame, Long):
            raise too_long(frame.size)
        answers: list[Command | Frame] = []
        for received in self.carrier.receive(frame):
            match received:
                case Audio(data):
                    answers += self._audio(data)
                case Digit(key):
                    answers += self._pressed(key)
                case Played(mark):
                    self._marks.returned(mark, self._received)
                case Stopped():
                    answers.append(HangUp("the caller has hung up"))
        return answers

    def read_more(self) -> list[Command | Frame]:
        """Return nothing: carriers send no long messages."""
        return []

    def _audio(self, data: bytes) -> list[Command]:
        pcm, rate = self.carrier.format_in.decode(data), self.carrier.format_in.rate
        if rate != RATE:
            pcm = to_pcm(self._to_session.feed(pcm))
        self._received += len(pcm) // 2
        keys = self._keypad.look(self._received)
        return [Hear(pcm), *typed(keys)] if keys else [Hear(pcm)]

    def _pressed(self, key: str) -> list[Command | Frame]:
        first = not self._keypad.waiting
        keys = self._keypad.press(key, self._received)
        answers: list[Command | Frame] = []
        if first and (keys or self._keypad.waiting):
            # The first key interrupts the agent. A reply that is done in the session may still be playing.
            answers += [Interrupt(), *self._cut()]
        return [*answers, *typed(keys)] if keys else answers

    # --- from the session -------------------------------------------------------------------------------

    def handle(self, event: Event | Result) -> list[Command | Frame]:
        """Return the carrier's messages for a session event, and the commands that follow from it.

        Raises Unanswered after ``MOST_FAILED`` replies in a row that failed in silence.
        """
        match event:
            case ReplyDone(status="failed", heard="", error=error):
                self._failed += 1
                if self._failed == MOST_FAILED:
                    raise Unanswered(f"{MOST_FAILED} replies in a row have failed, the last: {error}")
            case ReplyDone(status="completed" | "incomplete" | "failed"):
                self._failed = 0
        match event:
            case ReplyStarted(turn):
                self._turn, self._resampler = turn, None
                self._sent = self._made = self._marked = 0.0
            case ReplyAudio(turn, chunk) if turn == self._turn:
                return self._say(chunk)
            case ReplyDone(turn, status) if turn == self._turn:
                return self._cut() if status == "cancelled" else self._finish()
            case SpeechStarted(interrupts=True):
                return self._cut()
            case OverlapStarted() if self.options.holds_audio:
                self._held = self._received
                return some(self.carrier.hold)
            case OverlapEnded() if self.options.holds_audio:
                self._held = None
                return some(self.carrier.release)
        return []

    def flush(self) -> list[Command | Frame]:
        """Return the messages for held-back audio. Without them the last word would be cut off."""
        return self._send(self._waiting, shortest_ms=0)

    def goodbye(self, reason: str, code: str) -> Goodbye:
        """Return the end of a call that the server ends."""
        return Goodbye(reason)

    def _say(self, chunk: AudioChunk) -> list[Command | Frame]:
        spoken = self.carrier.format_out
        if chunk.rate != spoken.rate:
            self._resampler = self._resampler or Resampler(chunk.rate, spoken.rate)
            pcm = self._resampler.feed(chunk.pcm)
        else:
            pcm = chunk.pcm
        self._made = chunk.end / chunk.rate
        self._waiting += spoken.encode(pcm)
        return self._send(self._waiting, self.carrier.shortest_ms)

    def _send(self, waiting: bytearray, shortest_ms: int) -> list[Command | Frame]:
        """Return a message if there is enough audio for one, with a mark behind it if one is due."""
        spoken, step = self.carrier.format_out, self.carrier.step
        size = len(waiting) - len(waiting) % step
        if not size or size < spoken.size(shortest_ms):
            return []
        audio = bytes(waiting[:size])
        del waiting[:size]
        frames: list[Command | Frame] = [*self.carrier.media(audio)]
        self._sent = self._made - len(waiting) / spoken.size(1000)
        if self._turn is not None and self._sent - self._marked >= EVERY_SECONDS:
            frames += self._mark(self._turn)
        return frames

    def _mark(self, turn: int) -> list[Command | Frame]:
        self._marked = self._sent
        return some(self.carrier.mark(self._marks.place(turn, self._sent)))

    def _finish(self) -> list[Command | Frame]:
        """Return the messages for the end of a reply, and a mark behind it."""
        resampler, self._resampler = self._resampler, None  # it takes no input after its last
        if resampler is not None:
            self._waiting += self.carrier.format_out.encode(resampler.feed(b"", last=True))
        spoken, step = self.carrier.format_out, self.carrier.step
        self._waiting += spoken.silence(-len(self._waiting) % step)
        frames = self._send(self._waiting, shortest_ms=0)
        self._sent = self._made
        if self._turn is not None and self._sent > self._marked:
            frames += self._mark(self._turn)
        return frames

    def _cut(self) -> list[Command | Frame]:
        """Drop the unplayed audio of the last reply, and return the command that truncates it in the history.

        Where the carrier has never returned a mark, the history keeps the session's own estimate.
        """
        turn, self._turn = self._turn, None
        held, self._held = self._held, None
        self._waiting.clear()
        if turn is None:
            return []
        played = self._marks.played(turn, self._received if held is None else held)
        relied, over = self._marks.answered, not self._marks.waiting
        self._marks.clear()
        if relied and over and self._made and played >= self._made:
            return []  # the reply was heard to its end
        cut = some(self.carrier.clear)
        return [*cut, Truncate(turn, played)] if relied and played < self._made else cut


def some(frame: Frame | None) -> list[Command | Frame]:
    """Return a list with the message, empty where the carrier has no such message."""
    return [] if frame is None else [frame]


def typed(keys: str) -> list[Command]:
    """Return the commands that make the agent answer pressed keys."""
    return [AddText("user", f"(pressed {keys} on the keypad)"), Respond(None)]


def instructed(instructions: str, carrier: Carrier) -> str:
    """Return a call's instructions: the parameter ``instructions`` or ours, then the other parameters."""
    given = dict(carrier.parameters)
    given.pop("greet", None)
    instructions = given.pop("instructions", instructions)
    known = [f"{name}: {value}" for name, value in given.items()]
    return "\n".join([instructions, "About this call:", *known]) if known else instructions
