"""Raw PCM without any I/O: audio in binary messages, in both directions, and everything else in JSON.

``receive`` takes a client's message and returns commands for the session and messages for the client.
``tell`` takes a session event and returns messages. A client may report how much it has played, with
``played``. Without a report, the session estimates it from the time at which audio was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rejoinder.agent.wires.commands import (
    AddText,
    Command,
    Configure,
    EndTurn,
    Hear,
    Interrupt,
    Respond,
    Truncate,
)
from rejoinder.agent.wires.long_messages import Long
from rejoinder.agent.wires.pcm.messages import (
    MAX_AUDIO,
    End,
    Played,
    Reply,
    Said,
    Set,
    Stop,
    Text,
    flag_of,
    parse,
    rate_of,
    too_long,
)
from rejoinder.agent.wires.realtime.events import MAX_MESSAGE, new_id
from rejoinder.agent.wires.resampler import Resampler
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
        self._over = False
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

    def open(self) -> list[Message]:
        """Return the first message of the call."""
        return [{"type": "ready", "id": self.id, "rate": self._rate_in, "out": self._rate_out}]

    # --- from the client --------------------------------------------------------------------------------

    def receive(self, frame: str | bytes | Long, more: bool = False) -> Iterator[Command | Message]:
        """Take one message. An error in it becomes an error message, and the call goes on."""
        try:
            if isinstance(frame, Long):
                raise too_long(frame.size, frame.binary)
            if isinstance(frame, bytes):
                yield from self._hear(frame)
            else:
                yield from self._obey(parse(frame))
        except ProtocolError as error:
            yield {"type": "error", "code": error.code, "message": str(error)[:MAX_MESSAGE]}

    def _hear(self, data: bytes) -> Iterator[Command]:
        if len(data) % 2:
            reason = f"16-bit samples need an even number of bytes, not {len(data)}"
            raise ProtocolError(reason, "invalid_audio")
        if len(data) > MAX_AUDIO:
            raise too_long(len(data), binary=True)
        for piece in AudioChunk(data, self._rate_in).slices(self._rate_in):  # one second at a time
            self._received += len(piece)
            yield Hear(piece.pcm if self._rate_in == RATE else to_pcm(self._to_session.feed(piece)))

    def _obey(self, said: Said) -> Iterator[Command | Message]:
        match said:
            case Text() | Reply() | Stop():
                yield Interrupt()
                yield from self._cut()
                if isinstance(said, Text):
                    yield AddText("user", said.text)
                if not isinstance(said, Stop):
                    yield Respond(None)
            case End():
                yield EndTurn()
            case Played(turn=turn, ms=ms) if turn == self._turn:
                self._played = ms, self._received
            case Set():
                self.options = said.over(self.options)
                yield Configure(self.options)

    def heard(self, turn: int, text: str) -> None:
        """Record the part of a reply that the client reports as heard, for the message at its end."""
        self._corrected = {turn: text}

    # --- from the session -------------------------------------------------------------------------------

    def tell(self, happened: Event) -> Iterator[Command | Message]:
        """Return the client's messages for a session event, and the commands that follow from it."""
        match happened:
            case SpeechStarted():
                yield {"type": "speech_started"}
                if self.options.interrupt_response:
                    yield from self._cut()
            case PartialTranscript(text):
                yield {"type": "partial", "text": text}
            case EndOfTurn(text):
                yield {"type": "transcript", "text": text}
            case NothingSaid():
                yield {"type": "transcript", "text": ""}
            case OverlapStarted() if self.options.holds_audio:
                self._held = self._received
                yield {"type": "pause"}
            case OverlapEnded() if self.options.holds_audio:
                self._release()
                yield {"type": "resume"}
            case ReplyStarted(turn):
                self._turn, self._sent, self._over = turn, 0, False
                self._played = self._to_client = self._held = None
                yield {"type": "reply_started", "turn": turn}
            case ReplyText(turn, text):
                yield {"type": "reply_text", "turn": turn, "text": text}
            case ReplyAudio(turn, chunk) if turn == self._turn:
                yield from self._say(chunk)
            case ReplyDone():
                yield from self._done(happened)

    def flush(self) -> list[Command | Message]:
        """Return nothing: this wire holds no messages back."""
        return []

    def _say(self, chunk: AudioChunk, last: bool = False) -> Iterator[bytes]:
        pcm = chunk.pcm
        if chunk.rate != self._rate_out or self._to_client is not None:
            self._to_client = self._to_client or Resampler(chunk.rate, self._rate_out)
            pcm = self._to_client.feed(chunk, last)
        self._sent += len(pcm) // 2
        if pcm:
            yield pcm

    def _done(self, done: ReplyDone) -> Iterator[Command | Message]:
        if done.turn == self._turn:
            self._over = True
            if done.status == "cancelled":
                yield from self._cut()
            elif self._to_client is not None:
                yield from self._say(AudioChunk(b"", self._rate_out), last=True)
        ended: dict[str, Any] = {"type": "reply_ended", "turn": done.turn, "status": done.status}
        ended |= {"heard": self._corrected.pop(done.turn, done.heard), "ms": self._ms}
        yield ended | {"error": done.error[:MAX_MESSAGE]} if done.error else ended

    @property
    def _ms(self) -> int:
        return self._sent * 1000 // self._rate_out

    def _release(self) -> None:
        """Let the play-out position continue from where it was held."""
        if self._played is not None and self._held is not None:
            self._played = self._played[0], self._played[1] + self._received - self._held
        self._held = None

    def _cut(self) -> Iterator[Command | Message]:
        """Return the message that drops unplayed audio, and the truncation if the position is known.

        The client has played on since its last report, for as long as it has sent audio. A reply that was
        played to its end is not truncated.
        """
        turn, over, self._turn = self._turn, self._over, None
        if turn is None:
            return
        clear: Message = {"type": "clear", "turn": turn}
        if self._played is None:
            yield clear
            return
        ms, at = self._played
        now = self._received if self._held is None else self._held
        played = ms + max(0, now - at) * 1000 // self._rate_in
        if played < self._ms:
            yield clear
            yield Truncate(turn, played / 1000)  # carried out before the next line runs
            if over and turn in self._corrected:
                yield {"type": "heard", "turn": turn, "heard": self._corrected[turn]}
