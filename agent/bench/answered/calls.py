"""Calls in virtual time whose other side plays a greeting, with the real listening models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.answering.phrases import AnsweredBy
from rejoinder.agent.app.answering.who_answered import LIMIT_S, CallAnswer
from rejoinder.agent.app.call import Call
from rejoinder.agent.bench.answered.greetings import LINE_RATE, Greeting
from rejoinder.agent.simulate.scenario import Talk, sleep_until
from rejoinder.agent.simulate.virtual_clock import standing_still
from rejoinder.models.registry import create
from rejoinder.models.threads import plan
from rejoinder.pipeline import (
    AudioChunk,
    Endpointing,
    Options,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    Transcribed,
    Transcript,
    to_pcm,
)
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.audio.resample import ToSession

LISTENING = ("silero", "whisper:tiny.en", "smart-turn")
"""The models that listen: voice activity, the recogniser, and the end of turns."""
STT_S = 0.15
"""Virtual time of a transcription, in seconds. Whisper tiny.en needs less on two free cores."""
TURN_S = 0.03
"""Virtual time of a judgement of the turn model, in seconds."""
MESSAGE = "This is the clinic. Your appointment is on Tuesday at nine."
"""The message that is left on mailboxes."""
FRAME_S = 0.02
"""Length of one message of the line's audio, in seconds."""


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call.

    kind: who answered. first, last: who was taken to have answered, at first and in the end; reason: for the
    last. seconds: from pick-up to the first answer. after_words: the same from the last word, negative during
    the greeting. began: seconds from the end of the beep, or of the words without one, to the message's first
    sound; None without a message. words: as they were recognised.
    """

    kind: AnsweredBy
    name: str
    recorded: bool
    first: AnsweredBy
    last: AnsweredBy
    reason: str
    seconds: float
    after_words: float
    beeps: bool
    began: float | None
    words: str


async def measure(greetings: Sequence[Greeting], tell: Callable[[AnsweredCall], None]) -> list[AnsweredCall]:
    """Hold a call for each greeting, in turn. It needs a loop in virtual time. Raises ModelError.

    Cancelling closes the models.
    """
    threads = plan()
    listeners = [create(spec, threads) for spec in LISTENING]
    found = []
    try:
        for greeting in greetings:
            found.append(await _call(greeting, *listeners))
            tell(found[-1])
    finally:
        for model in listeners:
            if hasattr(model, "close"):
                model.close()
    return found


async def _call(greeting: Greeting, vad: Any, stt: Any, turn: Any) -> AnsweredCall:
    answers: list[CallAnswer] = []
    agent: Agent[None, None] = Agent(greeting="Hello, this is the clinic.")

    @agent.on_call
    def prepare(call: Call) -> None:
        call.detect_machine()

    @agent.on_answered_by
    async def note(call: Call, answer: CallAnswer) -> None:
        answers.append(answer)
        if answer.by is AnsweredBy.VOICEMAIL:
            await call.leave_message(MESSAGE, hang_up=False)

    models: dict[str, Any] = {"vad": _Vad(vad), "stt": _Stt(stt), "turn": _Turn(turn)}
    talk = Talk(**models, agent=agent, options=Options(instructions="", endpointing=Endpointing()))
    began = asyncio.get_running_loop().time()
    await talk.converse(lambda: _play(talk, greeting.audio, answers), microphone=False)
    first, last = answers[0], answers[-1]
    return AnsweredCall(
        greeting.kind,
        greeting.name,
        greeting.recorded,
        first.by,
        last.by,
        last.reason,
        first.seconds,
        first.seconds - greeting.end,
        greeting.beep is not None,
        _message_began(talk, began + (greeting.beep or greeting.end)),
        " ".join(event.text for event in talk.of(Transcribed)),
    )


async def _play(talk: Talk, audio: Samples, answers: Sequence[CallAnswer]) -> None:
    """Send a line's audio in real time, until the other side has waited for long enough."""
    loop, up = asyncio.get_running_loop(), ToSession(LINE_RATE)
    began, size = loop.time(), int(FRAME_S * LINE_RATE)
    for tick in range(int((len(audio) / LINE_RATE + LIMIT_S) / FRAME_S)):
        await sleep_until(began + (tick + 1) * FRAME_S)
        frame = audio[tick * size : (tick + 1) * size]
        if not len(frame) and (answers and not talk.session.reply):
            return
        pcm = to_pcm(frame) if len(frame) else bytes(2 * size)
        await talk.session.hear(to_pcm(up.feed(AudioChunk(pcm, LINE_RATE))))


def _message_began(talk: Talk, since: float) -> float | None:
    """Return the seconds from a loop time to the message's first sound; the last if it began again."""
    told = {event.turn for event in talk.of(ReplyDone) if event.heard.startswith(MESSAGE.split(".")[0])}
    begun = {event.turn for event in talk.of(ReplyStarted)} & told
    if not begun:
        return None
    first = next(at for at, event in talk.log if isinstance(event, ReplyAudio) and event.turn == max(begun))
    return first - since


class _Vad:
    """A voice activity detector without batches over several calls."""

    def __init__(self, vad: Any) -> None:
        self._vad = vad

    def stream(self) -> _VadStream:
        return _VadStream(self._vad.stream())


class _VadStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        found: list[tuple[int, float]] = self._stream.feed(chunk)
        return found


class _Stt:
    """A recogniser whose work takes ``STT_S`` of virtual time."""

    def __init__(self, stt: Any) -> None:
        self._stt = stt

    def stream(self) -> _SttStream:
        return _SttStream(self._stt.stream())


class _SttStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def feed(self, chunk: AudioChunk) -> None:
        self._stream.feed(chunk)

    async def transcribe(self, is_final: bool) -> Transcript:
        with standing_still():
            made: Transcript = await self._stream.transcribe(is_final)
        await asyncio.sleep(STT_S)
        return made

    def reset(self) -> None:
        self._stream.reset()


class _Turn:
    """A turn model whose work takes ``TURN_S`` of virtual time."""

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    async def probability(self, audio: Samples, text: str) -> float:
        with standing_still():
            made: float = await self._turn.probability(audio, text)
        await asyncio.sleep(TURN_S)
        return made
