"""Decides who has the floor, from speech probabilities, transcripts and a turn model.

Time is counted in samples received. So the same audio gives the same events, however it is divided into
chunks and however late it arrives. ``floor.py`` lists the transitions.
"""

from __future__ import annotations

from dataclasses import replace

from rejoinder.pipeline.audio.chunk import in_samples
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.events import (
    BackchannelEnded,
    EagerEndOfTurn,
    EndOfTurn,
    FloorEvent,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PauseStarted,
    SpeechStarted,
    Transcribed,
    TurnResumed,
)
from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.options import Endpointing, Options
from rejoinder.pipeline.turns.agent_side import AgentSide
from rejoinder.pipeline.turns.caller_voice import CallerVoice, Window
from rejoinder.pipeline.turns.floor import Floor
from rejoinder.pipeline.turns.interruption import is_vocal_tic
from rejoinder.pipeline.turns.overlap import HOLDING_MS, LAG_MS, Overlap
from rejoinder.pipeline.turns.patience import Patience
from rejoinder.pipeline.turns.pause import EMPTY_MS, Pause
from rejoinder.pipeline.turns.user_turn import UserTurn


class Endpointer:
    """The floor of one session. It has no clock and does no I/O; positions are samples at 16 kHz.

    Its methods take what happens and return the events that follow. No attribute is written from outside.

    endpointing: how turns begin and end. has_turn_model: whether a turn model judges pauses.
    agent: the agent's side of the floor; the session records there what the agent does.
    caller: tells the caller's voice from others.
    now: end of the audio judged or discarded so far; earlier audio is ignored.
    reached: end of the audio received so far, if the last whole window was silent.
    """

    def __init__(self, endpointing: Endpointing | None = None, has_turn_model: bool = False) -> None:
        self.agent = AgentSide()
        self.caller = CallerVoice()
        self.now = self.reached = 0
        self._options = Options(endpointing=endpointing or Endpointing())
        self._configure_caller()
        self._has_turn_model = has_turn_model
        self._patience = Patience()
        self._turn: UserTurn | None = None
        self._voice_run = 0  # voice at the end of the audio, in samples
        self._free_from = 0  # earlier audio belongs to turns that have ended
        self._manual_from = 0  # earlier audio is no part of a turn that the client ends

    @property
    def floor(self) -> Floor:
        """Who has the floor."""
        if self._turn is None:
            return Floor.AGENT if self.agent.has_floor else Floor.NOBODY
        if self._turn.overlap is not None:
            return Floor.OVERLAP
        return Floor.USER if self._turn.pause is None else Floor.PAUSE

    @property
    def agent_waits(self) -> bool:
        """Whether the agent is silent until it is known what a sound over it is."""
        return self._turn is not None and self._turn.holds_agent

    @property
    def turn_start(self) -> int | None:
        """First sample that may belong to the user's turn, None between turns."""
        return self._turn.start if self._turn else None

    @property
    def onset(self) -> int | None:
        """First sample of speech of the user's turn, None between turns."""
        return self._turn.onset if self._turn else None

    @property
    def pause(self) -> int | None:
        """End of the last voiced sample while the user pauses in a turn, else None."""
        return self._turn.pause.start if self._turn and self._turn.pause else None

    @property
    def is_unheard(self) -> bool:
        """Whether the user pauses in a turn, and the words before the pause are not known yet."""
        return self._turn is not None and self._turn.pause is not None and self._turn.pause.words is None

    @property
    def quiet_from(self) -> int | None:
        """Sample at which the silence of the pause begins: ``pause``, or sooner if the level fell before."""
        return self._turn.pause.quiet_from if self._turn and self._turn.pause else None

    @property
    def talking(self) -> bool:
        """Whether the newest window of the user's turn has speech."""
        turn = self._turn
        return turn is not None and turn.pause is None and turn.voiced_until >= self.now

    @property
    def idle(self) -> bool:
        """Whether no side has the floor, and no sound may become a turn."""
        sounds = self._voice_run or self.caller.undecided
        return self.floor is Floor.NOBODY and not sounds and not self.manual

    @property
    def manual(self) -> bool:
        """Whether the client ends turns; then all audio between two ends is one turn of the user."""
        return not self._options.detect_turns

    # --- what the session hears -------------------------------------------------------------------------

    def judge(self, window: Window) -> list[Window]:
        """Return the next windows for ``vad``, voices in the background as silence (``CallerVoice``)."""
        return self.caller.judge(window, self.floor in (Floor.AGENT, Floor.OVERLAP))

    def vad(self, end: int, probability: float) -> list[FloorEvent]:
        """Process the speech probability of the window that ends at sample ``end``."""
        if end <= self.now:
            return []
        step, self.now = end - self.now, end
        self.reached = max(self.reached, end)
        if self.manual:
            (self._turn or self._open_manual_turn()).voiced_until = end
            return []
        self._manual_from = end
        options, turn = self._options.endpointing, self._turn
        speaking = turn is not None and turn.pause is None
        voiced = probability >= (options.release if speaking else options.threshold)
        self._voice_run = self._voice_run + step if voiced else max(0, self._voice_run - 2 * step)
        if turn is None:
            return self._while_free()
        if turn.overlap is not None:
            return self._while_overlapping(turn, turn.overlap, voiced, step)
        if turn.pause is not None:
            return self._while_pausing(turn, turn.pause)
        return self._while_talking(turn, voiced)

    def extend_pause(self, end: int) -> list[FloorEvent]:
        """Extend a pause to sample ``end``: a turn can end between two windows, which are 32 ms apart."""
        self.reached = max(self.reached, end)
        return self._check_end() if self.floor is Floor.PAUSE else []

    def level_fell(self, pause: int, at: int) -> None:
        """Take the sample from which the level is low in the pause that began at ``pause``."""
        if self._turn and self._turn.pause and self._turn.pause.start == pause:
            self._turn.pause.level_fell(at)

    def transcript(self, transcript: Transcript, voice_ended: bool = False) -> list[FloorEvent]:
        """Process a transcript. Partial transcripts count during an overlap only.

        A final one that does not reach the current pause is ignored.
        voice_ended: whether the level says so, which is known before voice activity says so.
        """
        turn = self._turn
        if turn is None:
            return []
        if turn.overlap is not None and transcript.end > turn.onset:
            return self._transcript_over_agent(turn, turn.overlap, transcript, voice_ended)
        pause, text = turn.pause, transcript.text.strip()
        if pause is None or not pause.is_covered_by(transcript):
            return []
        asks_nothing = is_vocal_tic(text, self.agent.asked) or self.agent.is_echo(text, over_agent=False)
        pause.words = "" if asks_nothing and not self.manual else text
        pause.end_probability, pause.error = transcript.end_probability, None
        ended = self._check_answered(pause)
        return [Transcribed(pause.words), *ended] if pause.words else ended

    def transcript_failed(self, end: int, error: ModelError) -> list[FloorEvent]:
        """Process the recogniser's error in place of a final transcript that reaches sample ``end``.

        A turn in which nothing else is said ends without words, and NothingSaid says why. Whether a sound
        over the agent stops it, the words known so far decide.
        """
        turn = self._turn
        pause = turn.pause if turn else None
        if turn is None or pause is None or end < pause.start:
            return []
        pause.words, pause.error = "", error
        if turn.overlap is None:
            return self._check_answered(pause)
        turn.overlap.text = turn.overlap.text or ""
        return self._check_overlap(turn, turn.overlap)

    def turn_model_answered(self, pause: int, probability: float) -> list[FloorEvent]:
        """Process the turn model's probability for the pause that began at sample ``pause``."""
        if self._turn is None or self._turn.pause is None or self._turn.pause.start != pause:
            return []
        self._turn.pause.probabilities.append(probability)
        return self._check_answered(self._turn.pause) if self.floor is Floor.PAUSE else []

    # --- what the client decides ------------------------------------------------------------------------

    def configure(self, options: Options) -> list[FloorEvent]:
        """Replace the options. An overlap ends if speech can no longer stop the agent.

        A pause ends if the client ends turns from now on: silence must not end this turn any more.
        """
        self._options = replace(options)  # a copy: the client's own may change
        self._configure_caller()
        events = [] if options.detect_turns and options.interrupt_response else self.dismiss_overlap()
        if self.manual and self._turn and self._turn.pause and not self._turn.pause.forced:
            self._turn.resume(self.now)
            events.append(TurnResumed())
        return events

    def _configure_caller(self) -> None:
        options, settings = self._options, self._options.endpointing
        is_only = settings.speakers == "one" and options.detect_turns
        self.caller.configure(is_only, min(settings.threshold, settings.release))

    def end_turn(self, at: int) -> list[FloorEvent]:
        """End the user's turn at sample ``at``, without waiting for silence, once its transcript is final."""
        turn = self._turn
        if turn is None and self.manual and at > self._manual_start:
            turn = self._open_manual_turn()  # its audio is late, or came while the last turn was ending
        if turn is None:
            return []
        events = self._interrupt(turn) if turn.overlap else []
        if turn.pause is not None:
            turn.pause.forced = True
            return events + self._check_end()
        self.now = max(self.now, at)
        turn.voiced_until = at
        return [*events, self._start_pause(turn, forced=True)]

    def abandon_turn(self, at: int) -> list[FloorEvent]:
        """Drop the user's turn, and ignore the audio before sample ``at``."""
        events = self.dismiss_overlap()
        if self._turn is not None:
            self._close_turn(agent_answers=False)
        self._voice_run = 0
        self._free_from = self.now = max(self.now, at)
        return events

    def dismiss_overlap(self) -> list[FloorEvent]:
        """End an overlap as no interruption: the agent goes on."""
        if self._turn is None or self._turn.overlap is None:
            return []
        pause, text = self._turn.pause, self._turn.overlap.text or ""
        return self._end_overlap(text if pause and pause.words else "")

    # --- transitions ------------------------------------------------------------------------------------

    def _while_free(self) -> list[FloorEvent]:
        """NOBODY or AGENT: enough speech starts a turn or an overlap."""
        options, voice = self._options.endpointing, self._voice_run
        interrupts = self._options.interrupt_response and self.agent.yields
        yields = self.agent.has_floor and interrupts
        notice = options.notice_ms + (HOLDING_MS if self._options.holds_audio else 0)
        if voice < in_samples(notice if yields else options.start_ms):
            return []
        onset = self.now - voice
        turn = UserTurn(max(self._free_from, onset - in_samples(options.padding_ms)), onset, self.now)
        self._turn, self._voice_run = turn, 0
        self.caller.turn_began()
        if not yields:
            return [SpeechStarted(onset, interrupts)]
        self.agent.spoken_over()
        turn.overlap = Overlap(self.agent, voice, self._patience.goes_on(onset))
        return [OverlapStarted(onset)]

    def _while_talking(self, turn: UserTurn, voiced: bool) -> list[FloorEvent]:
        """USER: silence starts a pause, and so does the longest duration of a turn."""
        options = self._options.endpointing
        if voiced:
            turn.voiced_until = self.now
        too_long = self.now - turn.onset >= in_samples(options.max_turn_ms)
        if too_long or self.now - turn.voiced_until >= in_samples(options.pause_ms):
            return [self._start_pause(turn, forced=too_long)]
        return []

    def _while_pausing(self, turn: UserTurn, pause: Pause) -> list[FloorEvent]:
        """PAUSE: speech resumes the turn, and silence ends it."""
        if self._voice_run < in_samples(self._options.endpointing.resume_ms) or pause.forced:
            return self._check_end()
        turn.resume(self.now)
        return [TurnResumed()]

    def _while_overlapping(
        self, turn: UserTurn, overlap: Overlap, voiced: bool, step: int
    ) -> list[FloorEvent]:
        """OVERLAP: it may pause and resume; the events of that follow only if it is an interruption."""
        options = self._options.endpointing
        if turn.pause is not None and self._voice_run >= in_samples(options.resume_ms):
            overlap.voiced += self._voice_run
            turn.resume(self.now)
        elif turn.pause is None and voiced:
            overlap.voiced += step
            turn.voiced_until = self.now
        elif turn.pause is None and self.now - turn.voiced_until >= in_samples(options.pause_ms):
            self._start_pause(turn)
        return self._check_overlap(turn, overlap)

    def _transcript_over_agent(
        self, turn: UserTurn, overlap: Overlap, transcript: Transcript, voice_ended: bool
    ) -> list[FloorEvent]:
        overlap.read(transcript)
        if voice_ended and turn.pause is None and overlap.is_agreement:
            ended, self._voice_run = self._end_overlap(overlap.text or ""), -in_samples(LAG_MS)
            return ended
        if turn.pause is not None and turn.pause.is_covered_by(transcript):
            turn.pause.words = transcript.text.strip()
            turn.pause.end_probability = transcript.end_probability
        return self._check_overlap(turn, overlap) or overlap.review(turn.onset, turn.pause is not None)

    def _check_overlap(self, turn: UserTurn, overlap: Overlap) -> list[FloorEvent]:
        """Decide whether the overlap is an interruption; return no events while that is unknown."""
        pause = turn.pause
        silence = self.now - turn.voiced_until if pause and not self._voice_run else 0
        is_final = pause is not None and pause.words is not None
        match overlap.is_interruption(silence, is_final, self._options.endpointing):
            case True:
                return self._interrupt(turn)
            case False:
                return self.dismiss_overlap()
            case None:
                return []

    def _interrupt(self, turn: UserTurn) -> list[FloorEvent]:
        """Turn an overlap into a turn of the user."""
        self._patience.agent_interrupted(turn.onset, self._options.endpointing.patience)
        turn.overlap, turn.cut_in = None, True
        if turn.pause is None:
            return [SpeechStarted(turn.onset)]
        events: list[FloorEvent] = [SpeechStarted(turn.onset), PauseStarted(turn.pause.start)]
        words = turn.pause.words
        return [*events, Transcribed(words), *self._check_end()] if words else events

    def _end_overlap(self, text: str) -> list[FloorEvent]:
        """Let the agent go on, unless it speaks on already, or has finished meanwhile."""
        ended = OverlapEnded(text.strip()) if self.agent_waits else BackchannelEnded(text.strip())
        self._close_turn(self.agent.has_floor)
        return [ended]

    def _start_pause(self, turn: UserTurn, forced: bool = False) -> FloorEvent:
        turn.pause = Pause(turn.voiced_until, forced)
        self._voice_run = 0
        return PauseStarted(turn.pause.start)

    def _check_answered(self, pause: Pause) -> list[FloorEvent]:
        """Check the end for a model's answer. While a voice may be the caller's, the next window does."""
        return self._check_end() if pause.forced or not self.caller.undecided else []

    def _check_end(self) -> list[FloorEvent]:
        """End the turn if the pause is its end, and report the first sign of that."""
        pause = self._turn.pause if self._turn else None
        if pause is None or pause.words is None:
            return []
        options, asked = self._options.endpointing, self.agent.asked
        silence = 0 if self._voice_run else max(self.now, self.reached) - pause.quiet_from
        wait = pause.wait(options, self._patience, asked)
        if self._turn and self._turn.cut_in and not pause.words:
            wait = min(wait, in_samples(EMPTY_MS))
        over = pause.is_over(silence, wait, options, self._has_turn_model)
        events: list[FloorEvent] = []
        if pause.words and not pause.eager and (over or pause.may_be_over(silence, wait, asked)):
            pause.eager = True
            events.append(EagerEndOfTurn(pause.words))
        if not over:
            return events
        if pause.words:
            self.caller.turn_answered()
            if not pause.forced:
                self._patience.turn_answered(self.now)
        self._close_turn(agent_answers=pause.words != "")
        end = EndOfTurn(pause.words, pause.start) if pause.words else NothingSaid(pause.start, pause.error)
        return [*events, end]

    # --- the turn that is open --------------------------------------------------------------------------

    @property
    def _manual_start(self) -> int:
        """First sample of a turn whose end the client decides."""
        return max(self._free_from, self._manual_from)

    def _open_manual_turn(self) -> UserTurn:
        start = self._manual_start
        self._turn = UserTurn(start, onset=start, voiced_until=start)
        self._voice_run = 0
        return self._turn

    def _close_turn(self, agent_answers: bool) -> None:
        if self._turn and self._turn.pause:
            self._free_from = max(self._free_from, self._turn.pause.start)
        self._turn = None
        self.agent.take_floor(agent_answers)
        self._voice_run = 0
