"""Raw PCM without any I/O: audio in binary messages, in both directions, and everything else in JSON.

``receive`` takes a client's message and returns commands for the session and messages for the client.
``handle`` takes a session event and returns messages. A client may report how much it has played, with
``played``. Without a report, the session estimates it from the time at which audio was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rejoinder.agent.wires.commands import (
    AddText,
    Command,
    Configure,
    EndTurn,
    Hear,
    Interrupt,
    ReadMore,
    Respond,
    Result,
    Truncate,
    Truncated,
)
from rejoinder.agent.wires.failures import MAX_MESSAGE
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.long_messages import Long
from rejoinder.agent.wires.pcm.messages import (
    MAX_AUDIO,
    End,
    Played,
    Said,
    Set,
    StartReply,
    Stop,
    Text,
    flag_of,
    parse,
    rate_of,
    too_long,
)
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.agent.wires.wire import Goodbye
from rejoinder.pipeline import (
    RATE,
    BudgetReached,
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
    ReplyRefused,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    to_pcm,
)
from rejoinder.pipeline.audio.resample import ToSession

Message = dict[str, Any] | bytes
PARAMETERS = ("rate", "out", "hold")
"""Parameters of the URL. Others are refused, so that a client's wish, such as another codec, is not
ignored."""


class Pcm:
    """The server's side of one connection.

    rate_in, rate_out: sample rates of the client's and of the agent's audio, in hertz; both are 16-bit mono.
    id: the session's identifier, which the client receives. options: of the session.
    """

    flush_after: float | None = None
    name = "pcm"
    playing = False

    def __init__(self, options: Options, rate_in: int = RATE, rate_out: int = RATE) -> None:
        self.id = new_id("sess")
        self.options = options
        self._rate_in = rate_in
        self._rate_out = rate_out
        self._to_session = ToSession(rate_in)
        self._to_client: Resampler | None = None
        self._received = 0
        self._turn: int | None = None
        self._sent = 0
        self._ended: int | None = None
        self._truncating: ReplyDone | None = None
        self._unread = b""
        self._played: tuple[int, int] | None = None
        self._held: int | None = None
        self._corrected: dict[int, str] = {}

    @staticmethod
    def of(options: Options, query: Mapping[str, str]) -> Pcm:
        """Return the connection that a URL's query asks for. Raises ProtocolError."""
        if unknown := [name for name in query if name not in PARAMETERS]:
            reason = f"{unknown[0][:20]}: no such parameter here, only {', '.join(PARAMETERS)}"
            raise ProtocolError(reason, "unknown_parameter")
        hold = flag_of(query, "hold")
        rate_in = rate_of(query, "rate", RATE)
        return Pcm(replace(options, holds_audio=hold), rate_in, rate_of(query, "out", rate_in))

    def adopt(self, options: Options) -> None:
        """Replace the options of the session, before it begins."""
        self.options = options

    def open(self) -> list[Message]:
        """Return the first message of the call."""
        return [{"type": "ready", "id": self.id, "rate": self._rate_in, "out": self._rate_out}]

    # --- from the client --------------------------------------------------------------------------------

    def receive(self, frame: str | bytes | Long, more: bool = False) -> list[Command | Message]:
        """Take one message. An error in it becomes an error message, and the call goes on."""
        try:
            if isinstance(frame, bytes):
                return self._audio(frame)
            if isinstance(frame, Long):
                raise too_long(frame.size, frame.binary)
            return self._request(parse(frame))
        except ProtocolError as error:
            return [{"type": "error", "code": error.code, "message": str(error)[:MAX_MESSAGE]}]

    def read_more(self) -> list[Command | Message]:
        """Return the next second of the audio in a message that is longer."""
        size = 2 * self._rate_in
        pcm, self._unread = self._unread[:size], self._unread[size:]
        self._received += len(pcm) // 2
        if self._rate_in != RATE:
            pcm = to_pcm(self._to_session.feed(pcm))
        return [Hear(pcm), ReadMore()] if self._unread else [Hear(pcm)]

    def _audio(self, data: bytes) -> list[Command | Message]:
        if len(data) % 2:
            reason = f"16-bit samples need an even number of bytes, not {len(data)}"
            raise ProtocolError(reason, "invalid_audio")
        if len(data) > MAX_AUDIO:
            raise too_long(len(data), binary=True)
        self._unread = data
        return self.read_more() if data else []

    def _request(self, said: Said) -> list[Command | Message]:
        match said:
            case Text(text=text):
                return [Interrupt(), *self._cut(), AddText("user", text), Respond(None)]
            case StartReply():
                return [Interrupt(), *self._cut(), Respond(None)]
            case Stop():
                return [Interrupt(), *self._cut()]
            case End():
                return [EndTurn()]
            case Played(turn=turn, ms=ms):
                if turn == self._turn:
                    self._played = ms, self._received
                return []
            case Set():
                self.options = said.over(self.options)
                return [Configure(self.options)]

    # --- from the session -------------------------------------------------------------------------------

    def handle(self, event: Event | Result) -> list[Command | Message]:
        """Return the client's messages for a session event, and the commands that follow from it."""
        match event:
            case ReplyAudio(turn, chunk):
                return self._say(chunk.pcm, chunk.rate) if turn == self._turn else []
            case SpeechStarted(interrupts=interrupts):
                cut = self._cut() if interrupts else []
                return [{"type": "speech_started"}, *cut]
            case PartialTranscript(text):
                return [{"type": "partial", "text": text}]
            case EndOfTurn(text):
                return [{"type": "transcript", "text": text}]
            case NothingSaid():
                return [{"type": "transcript", "text": ""}]
            case OverlapStarted() if self.options.holds_audio:
                self._held = self._received
                return [{"type": "pause"}]
            case OverlapEnded() if self.options.holds_audio:
                self._release()
                return [{"type": "resume"}]
            case ReplyStarted(turn):
                self._turn, self._sent = turn, 0
                self._played = self._to_client = self._held = None
                return [{"type": "reply_started", "turn": turn}]
            case ReplyText(turn, text):
                return [{"type": "reply_text", "turn": turn, "text": text}]
            case BudgetReached(scope, share, over):
                return [{"type": "budget", "scope": scope, "share": share, "over": over}]
            case ReplyRefused(turn, reason):
                return [{"type": "reply_refused", "turn": turn, "reason": reason}]
            case ReplyDone():
                return self._done(event)
            case Truncated(turn, text):
                return self._truncated(turn, text)
        return []

    def flush(self) -> list[Command | Message]:
        """Return nothing: this wire holds no messages back."""
        return []

    def goodbye(self, reason: str, code: str) -> Goodbye:
        """Return the end of a call that the server ends."""
        return Goodbye(reason)

    def _say(self, pcm: bytes, rate: int, last: bool = False) -> list[Command | Message]:
        if rate != self._rate_out or self._to_client is not None:
            self._to_client = self._to_client or Resampler(rate, self._rate_out)
            pcm = self._to_client.feed(pcm, last)
        self._sent += len(pcm) // 2
        return [pcm] if pcm else []

    def _done(self, done: ReplyDone) -> list[Command | Message]:
        before: list[Command | Message] = []
        if done.turn == self._turn:
            self._ended = done.turn
            if done.status == "cancelled":
                before = self._cut()
                if before and isinstance(before[-1], Truncate):
                    self._truncating = done  # the message at its end says what was heard
                    return before
            elif self._to_client is not None:
                before = self._say(b"", self._rate_out, last=True)
        return [*before, self._reply_ended(done)]

    def _truncated(self, turn: int, text: str | None) -> list[Command | Message]:
        """Keep the part that was heard for the message at the reply's end; send it if the reply has ended."""
        answers: list[Command | Message] = []
        if text is not None:
            self._corrected = {turn: text}
            if turn == self._ended:
                answers.append({"type": "heard", "turn": turn, "heard": text})
        done, self._truncating = self._truncating, None
        return [*answers, self._reply_ended(done)] if done else answers

    def _reply_ended(self, done: ReplyDone) -> Message:
        ended: dict[str, Any] = {"type": "reply_ended", "turn": done.turn, "status": done.status}
        ended |= {"heard": self._corrected.pop(done.turn, done.heard), "ms": self._ms}
        return ended | {"error": done.error[:MAX_MESSAGE]} if done.error else ended

    @property
    def _ms(self) -> int:
        return self._sent * 1000 // self._rate_out

    def _release(self) -> None:
        """Let the play-out position continue from where it was held."""
        if self._played is not None and self._held is not None:
            self._played = self._played[0], self._played[1] + self._received - self._held
        self._held = None

    def _cut(self) -> list[Command | Message]:
        """Return the message that drops unplayed audio, and the truncation if the position is known.

        The client has played on since its last report, for as long as it has sent audio. A reply that was
        played to its end is not truncated.
        """
        turn, self._turn = self._turn, None
        if turn is None:
            return []
        clear: Message = {"type": "clear", "turn": turn}
        if self._played is None:
            return [clear]
        ms, at = self._played
        now = self._received if self._held is None else self._held
        played = ms + max(0, now - at) * 1000 // self._rate_in
        return [clear, Truncate(turn, played / 1000)] if played < self._ms else []
