"""The listening stages of a session: ``hear`` (voice activity) and ``TurnTranscriber`` (words)."""

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
"""Interval between two checks of a pause, in samples."""
TOGETHER = 7
"""Most waiting chunks in one call of the voice activity detector; it halves the cost of single chunks."""
QUIET = 8
"""Most silent batches held before they are forwarded: silence changes no decision while the line is idle."""
PARTIAL_SAMPLES = int(0.5 * RATE)
"""New audio needed for another partial transcript, in samples."""
DIP_SAMPLES = int(0.05 * RATE)
"""Quiet that may be the end of the turn, in samples. Few gaps between words are this long. After a shorter
one, Whisper tends to repeat words (docs/lab/latency-listening.md)."""
HUSH_SAMPLES = int(0.02 * RATE)
"""Quiet needed while the agent speaks, in samples: the words only decide whether the agent goes on."""
HUSHES_APART_SAMPLES = int(0.2 * RATE)
"""New audio needed between two transcripts for such quiet, in samples."""
ASK_SAMPLES = int(0.096 * RATE)
"""Silence before the turn model's first call, in samples. Each time the silence doubles, it is called again,
because it judges by the silence too."""
LOOK_SECONDS = 0.02
"""Interval between two checks for a pause while a partial transcript is late."""
MEMORY_SAMPLES = 8 * RATE
"""Most audio that is remembered, in samples: for the turn model, and for the start of a turn."""

NOTHING = Transcript("", False, 0)
"""The transcript before the first one."""

React = Callable[[FloorEvent | PartialTranscript], None]
"""A function that takes the events."""


async def hear(
    inp: Channel[AudioChunk],
    vad: VadStream,
    floor: Endpointer,
    react: React,
    out: Channel[AudioChunk],
    echo: Echo | None = None,
) -> None:
    """Detect speech in the incoming audio, update the floor, and pass the audio on until ``inp`` ends.

    It waits only if ``out`` is full. echo: removes the agent's own voice first; None to skip that.
    Cancelling drops the audio that was not passed on yet.
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
                    floor.agent.may_echo(echo.saying(event.at), echo.path.learnt)
                react(event)
        wait_on(floor, whole.end, react)
        if floor.idle and len(quiet) < QUIET:
            quiet.append(whole)
            continue
        for chunk in [joined(quiet), *chunks] if quiet else chunks:
            await out.send(chunk)
        quiet = []
    if quiet:
        await out.send(joined(quiet))
    out.close()


def wait_on(floor: Endpointer, end: int, react: React) -> None:
    """Extend a pause to sample ``end`` in fixed steps, which do not depend on the size of the chunks."""
    for sample in range(floor.reached + STEP, end + 1, STEP) if floor.floor is Floor.PAUSE else ():
        for event in floor.extend_pause(sample):
            react(event)


def next_ask(quiet: int, asked: int | None) -> int:
    """Return the sample at which to call the turn model next.

    quiet: sample at which the silence began. asked: sample of the last call, None if there was none.
    """
    if asked is None or asked < quiet + ASK_SAMPLES:  # the last call was about an earlier pause
        return quiet + ASK_SAMPLES
    return quiet + 2 * (asked - quiet)


def is_worth_it(new: int, dips: bool, level: LoadLevel, behind: bool) -> bool:
    """Return whether ``new`` samples justify a transcript before voice activity detects a pause.

    dips: whether the level has just fallen. behind: whether the engines are behind with their work.
    """
    if behind:
        return False
    if level >= LoadLevel.PARTIALS:
        return dips and new >= PARTIAL_SAMPLES
    return dips or new >= PARTIAL_SAMPLES


class TurnTranscriber:
    """Transcribes the current turn of one session, and calls the turn model in its pauses.

    It feeds the speech recogniser, and decides when to request a partial or a final transcript. It passes
    transcripts and the turn model's probabilities to the floor, and the resulting events to ``react``.
    """

    def __init__(self, models: Models, floor: Endpointer, react: React) -> None:
        self._stream = models.stt.stream()
        check_fits("stt stream", self._stream)
        self._turn_model = models.turn
        self._load_shedder = models.load_shedder
        self._floor = floor
        self._react = react
        # Bytes, not chunks: the garbage collector would visit 80,000 chunks of 200 sessions.
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
        self._deadline = Deadline()

    async def transcribe(self, inp: Channel[AudioChunk]) -> None:
        """Process audio until the channel ends: keep the transcript up to date, and judge pauses.

        The level falls before voice activity detects a pause. So a transcript starts when it falls, and
        is final if a pause follows. A new pause cancels the running transcript and requests its own. Audio
        waits while the recogniser is behind. Cancelling stops the recognition and the turn model.
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
        """Wait for the running transcript if it lags by half a second; if it is partial, until a pause."""
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
            return  # a dip must not cancel the transcript of the dip before, or none would ever finish
        overlap = self._floor.floor is Floor.OVERLAP  # here the words decide whether the agent stops
        quiet, apart = (HUSH_SAMPLES, HUSHES_APART_SAMPLES) if overlap else (DIP_SAMPLES, 0)
        start = self._turn_start or 0  # quiet since the start of the turn is not its end
        fell = since is not None and start < since and self._reached < since + quiet <= self._fed
        dips = fell and new >= apart
        level, behind = self._load_shedder.level, self._load_shedder.behind
        if is_worth_it(new, dips, *((LoadLevel.NOTHING, False) if overlap else (level, behind))):
            await self._recognise(tasks, complete=dips)

    def _fall(self, pause: int) -> None:
        """Report to the floor, once per pause, since when the level is low: it falls up to 0.1 s earlier."""
        if pause != self._final_for and self._fed >= pause:
            self._floor.level_fell(pause, self._loudness.quiet_before(pause))

    async def _finish(self, tasks: asyncio.TaskGroup) -> None:
        pause = self._floor.pause
        if pause is None or pause == self._final_for or self._fed < pause:
            return
        self._final_for = pause
        if self._recognising is None or not self._has_all(pause):
            await self._recognise(tasks, complete=True, awaited=True)
        elif self._recognising.done():
            self._pass_final()
        else:
            self._awaited = True
            self._deadline.due = asyncio.get_running_loop().time()

    def _has_all(self, pause: int) -> bool:
        """Return whether the latest transcript has all words before sample ``pause``."""
        quiet = self._loudness.quiet_from
        reached = quiet is not None and quiet <= self._reached
        return self._complete and reached and self._loudness.ended_by(pause)

    async def _recognise(self, tasks: asyncio.TaskGroup, complete: bool, awaited: bool = False) -> None:
        self._stop()
        self._reached, self._complete, self._awaited = self._fed, complete, awaited
        due = asyncio.get_running_loop().time() if awaited else None
        slack = GUESS_SECONDS if complete else PARTIAL_SECONDS
        self._deadline = Deadline(slack, due, frugal=self._load_shedder.level >= LoadLevel.WINDOW)
        self._recognising = tasks.create_task(self._write_down(complete, self._deadline))
        await asyncio.sleep(0)  # let it begin with the audio received so far

    def _stop(self) -> None:
        if self._recognising is not None:
            self._recognising.cancel()
            self._recognising = None

    async def _write_down(self, complete: bool, deadline: Deadline) -> None:
        current.set(deadline)
        with asking("speech recogniser"):
            self._latest = transcript = await self._stream.transcribe(is_final=complete)
        if self._awaited:
            self._pass_final()
            return
        quiet = self._loudness.quiet_from
        hushed = complete and quiet is not None and quiet <= self._reached  # and it is quiet since
        for event in self._floor.transcript(replace(transcript, is_final=False), hushed):
            self._react(event)
        if self._floor.floor is Floor.OVERLAP:  # it may be a cough: emit no words of it
            return
        if self._turn_start is not None and self._turn_start == self._floor.turn_start and transcript.text:
            self._react(PartialTranscript(transcript.text, self._agreement.feed(transcript.text)))

    def _pass_final(self) -> None:
        end = max(self._reached, self._final_for or 0)
        for event in self._floor.transcript(replace(self._latest, is_final=True, end=end)):
            self._react(event)

    def _ask(self, tasks: asyncio.TaskGroup) -> None:
        pause, quiet_from = self._floor.pause, self._floor.quiet_from
        if self._turn_model is None or pause is None or quiet_from is None:
            return
        if self._fed >= next_ask(quiet_from, self._asked_at):
            self._asked_at = self._fed
            sound = self._remembered(self._turn_start or 0).samples()
            tasks.create_task(self._judge(self._turn_model, pause, sound))

    async def _judge(self, turn_model: TurnModel, pause: int, sound: Samples) -> None:
        with asking("turn model"):
            probability = await turn_model.probability(sound, self._latest.text)
        for event in self._floor.turn_model_answered(pause, probability):
            self._react(event)

    def _remembered(self, start: int) -> AudioChunk:
        """Return the audio from sample ``start`` on, or from the oldest sample remembered."""
        oldest = self._heard - len(self._memory) // 2
        start = max(start, oldest)
        return AudioChunk(bytes(self._memory[2 * (start - oldest) :]), RATE, start)
