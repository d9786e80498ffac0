"""The second listening stage of a session: it transcribes the user's turn and judges its pauses."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

from rejoinder.pipeline.audio.chunk import AudioChunk, Samples
from rejoinder.pipeline.audio.loudness import Loudness
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, Deadline, current
from rejoinder.pipeline.engines.load_shedding import LoadLevel
from rejoinder.pipeline.errors import ModelError, Overloaded, asking
from rejoinder.pipeline.events import PartialTranscript
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.interfaces import Transcript, TurnModel
from rejoinder.pipeline.listening.agreement import LocalAgreement
from rejoinder.pipeline.listening.hearing import React
from rejoinder.pipeline.listening.recent_audio import RecentAudio
from rejoinder.pipeline.listening.schedule import (
    DIP_SAMPLES,
    FIRST_READING_SAMPLES,
    OVERLAP_DIP_SAMPLES,
    OVERLAP_DIPS_APART_SAMPLES,
    PARTIAL_SAMPLES,
    READINGS_APART_SAMPLES,
    is_worth_it,
    next_ask,
)
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.02
"""Interval between two checks for a pause while a partial transcript is late."""
NOTHING = Transcript("", False, 0)
"""The transcript before the first one."""
MISSED_TURNS = 3
"""The recogniser's error ends the session when it has failed at this number of pauses in a row."""


@dataclass(slots=True, eq=False)
class Recognition:
    """A transcript that is being made.

    complete: whether it covers the speech up to a fall of the level, so that it may be final.
    awaited: whether the user pauses, and the end of the turn waits for it.
    failed: whether the recogniser has failed, so that there are no words.
    """

    complete: bool
    awaited: bool
    deadline: Deadline
    failed: bool = False
    task: asyncio.Task[None] = field(init=False)


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
        self._recent = RecentAudio()
        self._turn_start: int | None = None
        self._loudness = Loudness()
        self._agreement = LocalAgreement()
        self._recognition: Recognition | None = None
        self._latest = NOTHING
        self._fed = 0  # end of the audio that the recogniser has
        self._reached = 0  # end of the audio that the newest transcript covers
        self._final_for: int | None = None  # the pause whose final transcript was requested
        self._asked_at: int | None = None  # end of the audio at the turn model's last call
        self._judged: int | None = None  # the pause that this call was about
        self._judgement: asyncio.Task[None] | None = None
        self._unjudged = False  # whether the turn model has failed at its last call
        self._failing = False  # whether the recogniser has failed at its last transcript
        self._missed = 0  # pauses in a row at which the recogniser failed

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
                if (pause := self._floor.pause) is not None:
                    self._report_level(pause)
                    self._ask_turn_model(tasks, pause)
                    await self._request_final(tasks, pause)
                elif self._floor.talking:
                    await self._request_partial(tasks)

    # --- audio ------------------------------------------------------------------------------------------

    def _take(self, chunk: AudioChunk) -> None:
        self._recent.add(chunk)
        if self._turn_start != self._floor.turn_start:
            self._begin(self._floor.turn_start)
        elif self._turn_start is not None:
            self._feed(chunk)

    def _begin(self, start: int | None) -> None:
        """Begin with the turn that starts at a sample, or wait for one if it is None."""
        self._stop()
        self._stream.reset()
        self._turn_start = start
        self._loudness = Loudness()
        self._agreement = LocalAgreement()
        self._latest = NOTHING
        self._final_for = self._asked_at = None
        if start is not None:
            self._fed = self._reached = start
            self._feed(self._recent.since(start))

    def _feed(self, chunk: AudioChunk) -> None:
        if chunk.end > self._fed:
            skip = max(0, self._fed - chunk.start)
            new = AudioChunk(chunk.pcm[2 * skip :], chunk.rate, chunk.start + skip)
            self._stream.feed(new)
            self._loudness.feed(new)
            self._fed = chunk.end

    async def _catch_up(self) -> None:
        """Wait for the running transcript if it lags by ``PARTIAL_SAMPLES``.

        The wait for a partial transcript ends when the user pauses.
        """
        if self._fed - self._reached < PARTIAL_SAMPLES:
            return
        while running := self._running:
            if not running.awaited and self._floor.pause is not None:
                return
            await asyncio.wait([running.task], timeout=None if running.awaited else CHECK_SECONDS)

    # --- the level --------------------------------------------------------------------------------------

    def _report_level(self, pause: int) -> None:
        """Report to the floor, once per pause, the sample from which the level is low.

        It is often before ``pause``, where voice activity ends; see ``Loudness.quiet_before``.
        """
        if pause != self._final_for and self._fed >= pause:
            self._floor.level_fell(pause, self._loudness.quiet_before(pause))

    def _dips(self, quiet: int) -> bool:
        """Return whether the level has been low for ``quiet`` samples since the newest transcript."""
        since, start = self._loudness.quiet_from, self._turn_start or 0
        if since is None or since <= start:  # quiet since the start of the turn is not its end
            return False
        return self._reached < since + quiet <= self._fed

    @property
    def _quiet_since_transcript(self) -> bool:
        """Whether the level has been low since before the end of the newest transcript."""
        quiet = self._loudness.quiet_from
        return quiet is not None and quiet <= self._reached

    # --- transcripts ------------------------------------------------------------------------------------

    async def _request_partial(self, tasks: asyncio.TaskGroup) -> None:
        """Start a transcript before voice activity detects a pause, if it is worth the work."""
        if (running := self._running) and running.complete:
            return  # a dip must not cancel the transcript of the dip before, or none would ever finish
        new = self._fed - self._reached
        if self._floor.floor is Floor.OVERLAP:  # here the words decide whether the agent stops
            dips = new >= OVERLAP_DIPS_APART_SAMPLES and self._dips(OVERLAP_DIP_SAMPLES)
            worth_it = dips or (self._running is None and self._is_reading_due(new))
        else:
            dips = self._dips(DIP_SAMPLES)
            worth_it = is_worth_it(new, dips, self._load_shedder.level, self._load_shedder.behind)
        if worth_it:
            await self._recognise(tasks, complete=dips)

    def _is_reading_due(self, new: int) -> bool:
        """Return whether a sound over the agent has gone on for long enough to be transcribed."""
        onset = self._floor.onset
        return (
            onset is not None and self._fed - onset >= FIRST_READING_SAMPLES and new >= READINGS_APART_SAMPLES
        )

    async def _request_final(self, tasks: asyncio.TaskGroup, pause: int) -> None:
        """Make a transcript final, once per pause: the newest one if it has all words, else a new one."""
        if pause == self._final_for or self._fed < pause:
            return
        self._final_for = pause
        newest = self._recognition
        if newest is None or not self._has_all(newest, pause):
            await self._recognise(tasks, complete=True, awaited=True)
        elif newest.task.done():
            self._pass_final()
        else:
            newest.awaited = True
            newest.deadline.due = asyncio.get_running_loop().time()

    def _has_all(self, recognition: Recognition, pause: int) -> bool:
        """Return whether the transcript has all words before sample ``pause``."""
        if recognition.failed:
            return False
        return recognition.complete and self._quiet_since_transcript and self._loudness.ended_by(pause)

    @property
    def _running(self) -> Recognition | None:
        """The transcript that is being made, None if there is none."""
        return self._recognition if self._recognition and not self._recognition.task.done() else None

    async def _recognise(self, tasks: asyncio.TaskGroup, complete: bool, awaited: bool = False) -> None:
        """Start a transcript of the audio so far, instead of the running one."""
        self._stop()
        self._reached = self._fed
        due = asyncio.get_running_loop().time() if awaited else None
        slack = GUESS_SECONDS if complete else PARTIAL_SECONDS
        deadline = Deadline(slack, due, frugal=self._load_shedder.level >= LoadLevel.WINDOW)
        self._recognition = Recognition(complete, awaited, deadline)
        self._recognition.task = tasks.create_task(self._run(self._recognition))
        await asyncio.sleep(0)  # let it begin with the audio received so far

    def _stop(self) -> None:
        if self._recognition is not None:
            self._recognition.task.cancel()
            self._recognition = None

    async def _run(self, recognition: Recognition) -> None:
        current.set(recognition.deadline)
        try:
            self._latest = await self._transcript(recognition)
        except ModelError as error:
            recognition.failed = True
            self._miss(error, recognition.awaited)
            return
        self._missed = 0 if recognition.complete else self._missed
        self._failing = False
        if recognition.awaited:
            self._pass_final()
        else:
            self._pass_partial(self._latest, recognition.complete)

    async def _transcript(self, recognition: Recognition) -> Transcript:
        """Return the transcript of the audio so far. A final one is tried twice, unless the model hangs."""
        with asking("speech recogniser", self._stream):
            try:
                return await self._stream.transcribe(is_final=recognition.complete)
            except ModelError as error:
                if not recognition.awaited or error.code == "model_timeout":
                    raise
                log.warning("the final transcript failed, and is tried again: %s", error)
            return await self._stream.transcribe(is_final=recognition.complete)

    def _miss(self, error: ModelError, awaited: bool) -> None:
        """Go on without a transcript. Raises the error if it is one of too many."""
        if not awaited:
            if not self._failing:
                log.warning("a transcript that nothing waited for failed: %s", error)
            self._failing = True
            return
        self._missed += 1
        if self._missed >= MISSED_TURNS:
            raise error
        log.warning("the words before a pause are not known: %s", error)
        self._latest = NOTHING
        for event in self._floor.transcript_failed(self._end, error):
            self._react(event)

    @property
    def _end(self) -> int:
        """The end of the audio that a final transcript covers."""
        return max(self._reached, self._final_for or 0)

    def _pass_final(self) -> None:
        for event in self._floor.transcript(replace(self._latest, is_final=True, end=self._end)):
            self._react(event)

    def _pass_partial(self, transcript: Transcript, complete: bool) -> None:
        voice_ended = complete and self._quiet_since_transcript
        for event in self._floor.transcript(replace(transcript, is_final=False), voice_ended):
            self._react(event)
        if self._floor.floor is Floor.OVERLAP:  # it may be a cough: emit no words of it
            return
        if self._turn_start is not None and self._turn_start == self._floor.turn_start and transcript.text:
            self._react(PartialTranscript(transcript.text, self._agreement.feed(transcript.text)))

    # --- the turn model ---------------------------------------------------------------------------------

    def _ask_turn_model(self, tasks: asyncio.TaskGroup, pause: int) -> None:
        """Call the turn model if it is time to."""
        quiet_from = self._floor.quiet_from
        if self._turn_model is None or quiet_from is None:
            return
        if self._judgement is not None and not self._judgement.done():
            if pause == self._judged:
                return  # one at a time, so that a busy turn model does not get further behind
            self._judgement.cancel()
        if self._fed >= next_ask(quiet_from, self._asked_at):
            self._asked_at, self._judged = self._fed, pause
            sound = self._recent.since(self._turn_start or 0).samples()
            self._judgement = tasks.create_task(self._judge(self._turn_model, pause, sound))

    async def _judge(self, turn_model: TurnModel, pause: int, sound: Samples) -> None:
        try:
            with asking("turn model", turn_model):
                probability = await turn_model.probability(sound, self._latest.text)
        except (ModelError, Overloaded) as error:  # the words and the silence decide, as without a turn model
            if not self._unjudged:
                log.warning("the words and the silence end the turns: %s", error)
            self._unjudged = True
            return
        self._unjudged = False
        for event in self._floor.turn_model_answered(pause, probability):
            self._react(event)
