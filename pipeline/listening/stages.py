"""The listening stages of a session: hear (voice activity) and transcribe (words)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, joined
from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.audio.loudness import Loudness
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, Deadline, current
from rejoinder.pipeline.engines.load_shedding import LoadLevel
from rejoinder.pipeline.errors import asking
from rejoinder.pipeline.events import FloorEvent, OverlapStarted, PartialTranscript, SpeechStarted
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.interfaces import SharedVadStream, Transcript, TurnModel, VadStream
from rejoinder.pipeline.listening.agreement import LocalAgreement
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.turns.endpointer import Endpointer, Floor

STEP = RATE // 200
"""How often it is looked whether a pause is long enough, between two windows of voice activity."""
TOGETHER = 7
"""Chunks that voice activity is found in at once, where they wait: it costs half of one after the other."""
QUIET = 8
"""Times that what is heard of silence is kept back: it is to be remembered, and nothing is decided by it."""
PARTIAL_SAMPLES = int(0.5 * RATE)
"""New audio that is worth another partial transcript."""
DIP_SAMPLES = int(0.05 * RATE)
"""Quiet that may be the end of the turn: few gaps between words and no closed lips last so long, and Whisper
repeats itself where speech breaks off sooner (docs/lab/latency.md)."""
HUSH_SAMPLES, HUSHES_APART_SAMPLES = int(0.02 * RATE), int(0.2 * RATE)
"""The same over the agent, where words only say whether it goes on, and new audio that has one at most."""
ASK_SAMPLES = int(0.096 * RATE)
"""Silence before the turn model is asked, and again whenever it has doubled: it judges by the silence too."""
LOOK_SECONDS = 0.02
"""How often it is looked whether a pause has begun while a partial transcript takes long."""
MEMORY_SAMPLES = 8 * RATE
"""Audio that the turn model is shown, at most; the pre-roll of a turn comes out of the same memory."""

NOTHING = Transcript("", False, 0)

React = Callable[[FloorEvent | PartialTranscript], None]


async def hear(
    inp: Channel[AudioChunk],
    vad: VadStream,
    floor: Endpointer,
    react: React,
    out: Channel[AudioChunk],
    echo: Echo | None = None,
) -> None:
    """Find speech in what arrives and pass the audio on. Never waits for a recogniser that keeps up.

    echo: takes the agent's own voice out of both.
    """
    loop = asyncio.get_running_loop()
    quiet: list[AudioChunk] = []
    shared = vad if isinstance(vad, SharedVadStream) else None
    async for first in inp:
        chunks = [first, *inp.receive_nowait(TOGETHER - 1)]
        if echo:
            chunks = [echo.hear(chunk, loop.time()) for chunk in chunks]
        whole = joined(chunks)
        with asking("voice activity detection"):
            windows = await shared.feed_together(whole) if shared else vad.feed(whole)
        for end, probability in windows:
            wait_on(floor, end - 1, react)
            for event in floor.vad(end, probability):
                if echo and isinstance(event, OverlapStarted | SpeechStarted):
                    floor.saying, floor.unlearnt = echo.saying(event.at), not echo.path.learnt
                react(event)
        wait_on(floor, whole.end, react)
        if floor.still and len(quiet) < QUIET:
            quiet.append(whole)
            continue
        for chunk in [joined(quiet), *chunks] if quiet else chunks:
            await out.send(chunk)
        quiet = []
    if quiet:
        await out.send(joined(quiet))
    out.close()


def wait_on(floor: Endpointer, end: int, react: React) -> None:
    """Let a pause grow until sample ``end``, step by step: the same ones however the audio is cut."""
    for sample in range(floor.reached + STEP, end + 1, STEP) if floor.floor is Floor.PAUSE else ():
        for event in floor.passed(sample):
            react(event)


def next_ask(quiet: int, asked: int | None) -> int:
    """Return the sample at which the turn model is asked about a pause after it was asked at ``asked``.

    quiet: the sample from which on it is silent.
    """
    if asked is None or asked < quiet + ASK_SAMPLES:  # it was about an earlier pause
        return quiet + ASK_SAMPLES
    return quiet + 2 * (asked - quiet)


def is_worth_it(new: int, dips: bool, level: LoadLevel, behind: bool) -> bool:
    """Tell whether so many new samples are worth a transcript before there is a pause.

    dips: whether the speaker has fallen quiet, for a moment or at the end. behind: whether work waits long.
    """
    if behind:
        return False
    if level >= LoadLevel.PARTIALS:
        return dips and new >= PARTIAL_SAMPLES
    return dips or new >= PARTIAL_SAMPLES


class TurnTranscriber:
    """The words and the sound of one session's current turn."""

    def __init__(self, models: Models, floor: Endpointer, react: React) -> None:
        self._stream = models.stt.stream()
        check_fits("stt stream", self._stream)
        self._turn_model = models.turn
        self._ladder = models.load_shedder
        self._floor = floor
        floor.has_judge = models.turn is not None
        self._react = react
        # No chunks: 200 sessions would have 80,000 of them for the garbage collector to look at.
        self._memory = bytearray()
        self._agreement = LocalAgreement()
        self._loudness = Loudness()
        self._turn_start: int | None = None
        self._heard = self._fed = 0
        self._reached = 0
        self._final_for: int | None = None
        self._asked_at: int | None = None
        self._latest = NOTHING
        self._recognising: asyncio.Task[None] | None = None
        self._complete = self._awaited = False
        self._urgency = Deadline()

    async def transcribe(self, inp: Channel[AudioChunk]) -> None:
        """Keep the transcript of the turn up to date, and the turn model asked while a pause grows.

        A turn may be over wherever its speaker falls quiet, and the level tells that sooner than voice
        activity: the words are written down from there on, and are final if a pause follows. Another pause
        stops the transcript that runs and asks for its own. Audio that comes faster than it can be written
        down waits.
        """
        async with asyncio.TaskGroup() as tasks:
            async for chunk in inp:
                self._take(chunk)
                await self._catch_up()
                if self._floor.pause is not None:
                    self._fall(self._floor.pause)
                    self._ask(tasks)
                    await self._finish(tasks)
                elif self._floor.talking:
                    await self._update(tasks)

    async def _catch_up(self) -> None:
        """Wait for what is being recognised once half a second is behind it, a partial one until a pause."""
        if self._fed - self._reached < PARTIAL_SAMPLES:
            return
        while self._recognising is not None and not self._recognising.done():
            if not self._awaited and self._floor.pause is not None:
                return
            await asyncio.wait([self._recognising], timeout=None if self._awaited else LOOK_SECONDS)

    def _take(self, chunk: AudioChunk) -> None:
        self._memory += chunk.pcm
        del self._memory[: -2 * MEMORY_SAMPLES]
        self._heard = chunk.end
        if self._turn_start != self._floor.turn_start:
            self._begin(self._floor.turn_start)
        elif self._turn_start is not None:
            self._feed(chunk)

    def _begin(self, start: int | None) -> None:
        self._stop()
        self._stream.reset()
        self._agreement = LocalAgreement()
        self._loudness = Loudness()
        self._turn_start = start
        self._final_for = self._asked_at = None
        self._latest = NOTHING
        if start is not None:
            self._fed = self._reached = start
            self._feed(self._remembered(start))

    def _feed(self, chunk: AudioChunk) -> None:
        if chunk.end > self._fed:
            skip = max(0, self._fed - chunk.start)
            new = AudioChunk(chunk.pcm[2 * skip :], chunk.rate, chunk.start + skip)
            self._stream.feed(new)
            self._loudness.feed(new)
            self._fed = chunk.end

    async def _update(self, tasks: asyncio.TaskGroup) -> None:
        new, since = self._fed - self._reached, self._loudness.quiet_from
        if self._complete and self._recognising is not None and not self._recognising.done():
            return  # dips that cut each other off would leave no words at all
        overlap = self._floor.floor is Floor.OVERLAP  # whether that stops the agent is for the words to say
        quiet, apart = (HUSH_SAMPLES, HUSHES_APART_SAMPLES) if overlap else (DIP_SAMPLES, 0)
        start = self._turn_start or 0  # quiet from there on ends nothing
        fell = since is not None and start < since and self._reached < since + quiet <= self._fed
        dips = fell and new >= apart
        level, behind = self._ladder.level, self._ladder.behind
        if is_worth_it(new, dips, *((LoadLevel.NOTHING, False) if overlap else (level, behind))):
            await self._recognise(tasks, complete=dips)

    def _fall(self, pause: int) -> None:
        """Tell once in each pause since when it is quiet: voice activity lags 0.1 s behind some voices."""
        if pause != self._final_for and self._fed >= pause:
            self._floor.fell(pause, self._loudness.quiet_before(pause))

    async def _finish(self, tasks: asyncio.TaskGroup) -> None:
        pause = self._floor.pause
        if pause is None or pause == self._final_for or self._fed < pause:
            return
        self._final_for = pause
        if self._recognising is None or not self._has_all(pause):
            await self._recognise(tasks, complete=True, awaited=True)
        elif self._recognising.done():
            self._tell_final()
        else:
            self._awaited = True
            self._urgency.due = asyncio.get_running_loop().time()

    def _has_all(self, pause: int) -> bool:
        """Tell whether the latest transcript has every word said before ``pause``."""
        quiet = self._loudness.quiet_from
        reached = quiet is not None and quiet <= self._reached
        return self._complete and reached and self._loudness.ended_by(pause)

    async def _recognise(self, tasks: asyncio.TaskGroup, complete: bool, awaited: bool = False) -> None:
        self._stop()
        self._reached, self._complete, self._awaited = self._fed, complete, awaited
        due = asyncio.get_running_loop().time() if awaited else None
        slack = GUESS_SECONDS if complete else PARTIAL_SECONDS
        self._urgency = Deadline(slack, due, frugal=self._ladder.level >= LoadLevel.WINDOW)
        self._recognising = tasks.create_task(self._write_down(complete, self._urgency))
        await asyncio.sleep(0)  # it begins with the audio that is here, not with what arrives meanwhile

    def _stop(self) -> None:
        if self._recognising is not None:
            self._recognising.cancel()
            self._recognising = None

    async def _write_down(self, complete: bool, deadline: Deadline) -> None:
        current.set(deadline)
        with asking("speech recogniser"):
            self._latest = transcript = await self._stream.transcribe(is_final=complete)
        if self._awaited:
            self._tell_final()
            return
        quiet = self._loudness.quiet_from
        hushed = complete and quiet is not None and quiet <= self._reached  # and nothing was said since
        for event in self._floor.transcript(replace(transcript, is_final=False), hushed):
            self._react(event)
        if self._floor.floor is Floor.OVERLAP:  # what may be a cough is told to nobody
            return
        if self._turn_start is not None and self._turn_start == self._floor.turn_start and transcript.text:
            self._react(PartialTranscript(transcript.text, self._agreement.feed(transcript.text)))

    def _tell_final(self) -> None:
        end = max(self._reached, self._final_for or 0)
        for event in self._floor.transcript(replace(self._latest, is_final=True, end=end)):
            self._react(event)

    def _ask(self, asking: asyncio.TaskGroup) -> None:
        pause = self._floor.pause
        if self._turn_model is None or pause is None:
            return
        if self._fed >= next_ask(self._floor.quiet, self._asked_at):
            self._asked_at = self._fed
            sound = self._remembered(self._turn_start or 0).samples()
            asking.create_task(self._judge(self._turn_model, pause, sound))

    async def _judge(self, turn_model: TurnModel, pause: int, sound: Samples) -> None:
        with asking("turn model"):
            probability = await turn_model.probability(sound, self._latest.text)
        for event in self._floor.judged(pause, probability):
            self._react(event)

    def _remembered(self, start: int) -> AudioChunk:
        """Return the audio from sample ``start`` on, as far as it is remembered."""
        oldest = self._heard - len(self._memory) // 2
        start = max(start, oldest)
        return AudioChunk(bytes(self._memory[2 * (start - oldest) :]), RATE, start)
