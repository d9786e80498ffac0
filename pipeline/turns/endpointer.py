"""Decides who has the floor, from speech probabilities, transcripts and a turn model.

Time is counted in samples received. So the same audio gives the same events, however it is divided into
chunks and however late it arrives. The transitions:

    floor   event                                                     next    output
    ------  --------------------------------------------------------  ------  --------------
    NOBODY  speech for ``start_ms``                                   USER    SpeechStarted
    AGENT   speech for ``start_ms``, the agent does not yield         USER    SpeechStarted
    AGENT   speech for ``notice_ms``, the agent yields                OVERLAP OverlapStarted
    OVERLAP a noise or a backchannel (see interruption.py)            AGENT   OverlapEnded
    OVERLAP an interruption that goes on                              USER    SpeechStarted
    OVERLAP an interruption that has ended                            PAUSE   SpeechStarted, PauseStarted
    OVERLAP a noise, and the agent has finished meanwhile             NOBODY  OverlapEnded
    USER    silence for ``pause_ms``, or speech for ``max_turn_ms``   PAUSE   PauseStarted
    PAUSE   the final transcript has words                            PAUSE   Transcribed
    PAUSE   its words sound whole, or it may end within ``EAGER_MS``  PAUSE   EagerEndOfTurn
    PAUSE   silence for ``max_wait_ms``, the final transcript is empty  NOBODY  NothingSaid
    PAUSE   speech for ``resume_ms``                                  USER    TurnResumed
    PAUSE   silence for ``min_wait_ms``, the transcript is final,     AGENT   EndOfTurn
            and the end is ``patience`` times as likely as more
    PAUSE   silence for ``max_wait_ms``, the transcript is final      AGENT   EndOfTurn
    AGENT   the agent has finished                                    NOBODY  -
"""

from __future__ import annotations

from enum import Enum, auto

from rejoinder.pipeline.audio.chunk import RATE
from rejoinder.pipeline.events import (
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
from rejoinder.pipeline.listening.agreement import normalise
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns import turn_end
from rejoinder.pipeline.turns.interruption import (
    Overlap,
    is_backchannel,
    is_echo,
    is_interruption,
    prefer_backchannel,
)

ECHO_WORDS = 5
"""Fewest of the agent's last words that count as its echo; fewer may be an answer: "tomorrow at ten"."""
TOO_SOON_MS = 1_000
"""An interruption within this time of the reply's start means that the agent cut the user off."""
MORE_PATIENCE = 3.0
"""Factor on the patience each time the agent has cut the user off."""
MOST_PATIENCE = 8.0
"""Limit of the patience after such a factor."""
HEARD_OUT_TURNS = 3
"""Turns without a cut-off after which the extra patience resets."""
LAG_MS = 96
"""Longest time that voice activity lags behind the level at the end of a "mm-hm"."""
EAGER_MS = 250
"""Time to a reply's first sound (docs/lab/latency.md). Replies to incomplete words start no earlier."""
ANSWER_MS = 400
"""Longest wait for the turn model's first answer, which comes late on a busy machine."""


class Floor(Enum):
    """The states of the floor: who is speaking, or about to."""

    NOBODY = auto()
    USER = auto()
    PAUSE = auto()
    AGENT = auto()
    OVERLAP = auto()


class Endpointer:
    """The floor of one session. It has no clock and does no I/O; positions are samples at 16 kHz.

    now: end of the audio judged or discarded so far; earlier audio is ignored.
    reached: end of the audio received so far, if the last whole window was silent; at least ``now``.
    turn_start: first sample that may belong to the user's turn, None between turns.
    pause: end of the last voiced sample while the user pauses in a turn, else None.
    quiet: where the silence of the pause begins: ``pause``, or sooner if the level fell before.
    asked: the agent's last words that the user heard; a request to spell changes when a turn ends.
    saying: the agent's words near the onset of an overlap, "" if the microphone does not pick them up.
    unlearnt: whether the echo path from the agent to the microphone is not learnt yet.
    manual: whether the client ends turns; then all audio between two ends is one turn of the user.
    yields: whether speech can stop the agent. has_judge: whether a turn model judges pauses.
    """

    def __init__(self, options: Endpointing | None = None) -> None:
        self.options = options or Endpointing()
        self.floor = Floor.NOBODY
        self.manual = self.has_judge = self.unlearnt = False
        self.yields = True
        self.now = self.reached = 0
        self.turn_start: int | None = None
        self.pause: int | None = None
        self.quiet = 0
        self.asked = self.saying = ""
        self._free_from = self._manual_from = 0
        self._onset = self._voiced_until = 0
        self._run = self._voiced = 0
        self._forced = False
        self._final: str | None = None
        self._end_probability: float | None = None
        self._answers: list[float] = []
        self._overlap_text: str | None = None
        self._ending = self._agent_finished = False
        self._eager_for: int | None = None
        self._answered_at = -_samples(TOO_SOON_MS)
        self._patience, self._heard_out = 0.0, 0

    @property
    def talking(self) -> bool:
        """Whether the newest window of the user's turn has speech."""
        return self._open_turn and self._voiced_until >= self.now

    @property
    def idle(self) -> bool:
        """Whether no side has the floor, and no sound may become a turn."""
        return self.floor is Floor.NOBODY and not self._run and not self.manual

    @property
    def _open_turn(self) -> bool:
        return self.floor in (Floor.USER, Floor.OVERLAP) and self.pause is None

    def vad(self, end: int, probability: float) -> list[FloorEvent]:
        """Process the speech probability of the window that ends at sample ``end``."""
        if end <= self.now:
            return []
        step, self.now = end - self.now, end
        self.reached = max(self.reached, end)
        if self.manual:
            if self.floor in (Floor.NOBODY, Floor.AGENT):
                self._open(max(self._free_from, self._manual_from))
            self._voiced_until = end
            return []
        self._manual_from = end
        voiced = probability >= (self.options.release if self._open_turn else self.options.threshold)
        self._run = self._run + step if voiced else max(0, self._run - 2 * step)
        if self.floor is Floor.USER:
            return self._while_talking(voiced)
        if self.floor is Floor.PAUSE:
            return self._while_pausing()
        if self.floor is Floor.OVERLAP:
            return self._while_overlapping(voiced, step)
        if self.floor is Floor.AGENT and self.yields:
            noticed = self._run >= _samples(self.options.notice_ms)
            return [self._overlap(end - self._run)] if noticed else []
        if self._run >= _samples(self.options.start_ms):
            return [self._begin(end - self._run)]
        return []

    def passed(self, end: int) -> list[FloorEvent]:
        """Extend a pause to sample ``end``: a turn can end between two windows, which are 32 ms apart."""
        self.reached = max(self.reached, end)
        return self._decide() if self.floor is Floor.PAUSE else []

    def transcript(self, transcript: Transcript, hushed: bool = False) -> list[FloorEvent]:
        """Process a transcript. Partial transcripts count during an overlap only.

        A final one that does not reach the current pause is ignored.
        hushed: whether the level says that the voice has ended, which is known before voice activity says so.
        """
        if self.floor is Floor.OVERLAP and transcript.end > self._onset:
            plain = self._ending or self._echoed(transcript.text)
            self._overlap_text = transcript.text if plain else prefer_backchannel(transcript)
            if hushed and self.pause is None and self._agrees(self._overlap_text):
                self._final = transcript.text.strip()
                event = self._go_on()
                self._run = -_samples(LAG_MS)
                return [event]
            if self.pause is not None and transcript.is_final and transcript.end >= self.pause:
                self._final, self._end_probability = transcript.text.strip(), transcript.end_probability
            return self._doubt()
        if self.pause is None or not transcript.is_final or transcript.end < self.pause:
            return []
        self._final = text = "" if self._echoed(transcript.text) else transcript.text.strip()
        self._end_probability = transcript.end_probability
        return [Transcribed(text), *self._decide()] if text else self._decide()

    def fell(self, pause: int, quiet: int) -> None:
        """Set the sample from which the level is low in the pause that began at ``pause``."""
        if pause == self.pause:
            self.quiet = min(quiet, pause)

    def judged(self, pause: int, probability: float) -> list[FloorEvent]:
        """Process the turn model's probability for the pause that began at sample ``pause``."""
        if pause != self.pause:
            return []
        self._answers.append(probability)
        return self._decide() if self.floor is Floor.PAUSE else []

    def agent_done(self) -> None:
        """Record that the agent has finished."""
        if self.floor is Floor.AGENT:
            self.floor = Floor.NOBODY
        self._agent_finished = self._ending = self.floor is Floor.OVERLAP

    def agent_ends(self) -> None:
        """Record that the agent is at its last words: words over them may be an answer."""
        self._ending = True

    def agent_speaks(self) -> None:
        """Record that the agent starts to speak; it takes the floor if no side has it."""
        if self.floor is Floor.NOBODY:
            self.floor = Floor.AGENT
        self._agent_finished = self._ending = False

    def dismiss(self) -> list[FloorEvent]:
        """End an overlap as no interruption: the agent goes on."""
        return [self._go_on()] if self.floor is Floor.OVERLAP else []

    def end_turn(self, at: int) -> list[FloorEvent]:
        """End the user's turn at sample ``at``, without waiting for silence, once its transcript is final."""
        start = max(self._free_from, self._manual_from)
        if self.manual and self.floor in (Floor.NOBODY, Floor.AGENT) and at > start:
            self._open(start)  # its audio has not arrived yet, or came while the last turn was ending
        begun = self._interrupt() if self.floor is Floor.OVERLAP else []
        if self.floor is Floor.USER:
            self.now = max(self.now, at)
            self._voiced_until = at
            self._forced = True
            return [*begun, self._pause()]
        self._forced = self.floor is Floor.PAUSE
        return begun + self._decide()

    def abandon(self, at: int) -> list[FloorEvent]:
        """Drop the user's turn, and ignore the audio before sample ``at``."""
        events = self.dismiss()
        if self.floor in (Floor.USER, Floor.PAUSE):
            self._release(Floor.NOBODY)
        self._run = 0
        self._free_from = self.now = max(self.now, at)
        return events

    def _open(self, at: int) -> None:
        self._release(Floor.USER)
        self.turn_start = self._onset = self._voiced_until = at

    def _begin(self, at: int) -> FloorEvent:
        self._enter(Floor.USER, at)
        return SpeechStarted(at)

    def _overlap(self, at: int) -> FloorEvent:
        self._enter(Floor.OVERLAP, at)
        self._voiced = self.now - at
        return OverlapStarted(at)

    def _enter(self, floor: Floor, at: int) -> None:
        self._release(floor)
        self._onset = at
        self._voiced_until = self.now
        self.turn_start = max(self._free_from, at - _samples(self.options.padding_ms))

    def _while_overlapping(self, voiced: bool, step: int) -> list[FloorEvent]:
        if self.pause is not None and self._run >= _samples(self.options.resume_ms):
            self._voiced += self._run
            self._voiced_until = self.now
            self.pause = self._final = None
            self._answers = []
        elif self.pause is None and voiced:
            self._voiced += step
            self._voiced_until = self.now
        elif self.pause is None and self.now - self._voiced_until >= _samples(self.options.pause_ms):
            self.pause = self.quiet = self._voiced_until
            self._run = 0
        return self._doubt()

    def _doubt(self) -> list[FloorEvent]:
        """Decide whether the overlap is an interruption; return no events while that is unknown."""
        over = self.pause is not None and not self._run
        heard = Overlap(
            voiced_ms=self._voiced * 1000 / RATE,
            silent_ms=(self.now - self._voiced_until) * 1000 / RATE if over else 0.0,
            text=self._overlap_text,
            is_final=self._final is not None,
            ending=self._ending,
            echoing=bool(self.saying),
            unlearnt=self.unlearnt,
            echo=self._overlap_text is not None and self._echoed(self._overlap_text),
        )
        match is_interruption(heard, self.options.start_ms, self.options.assertiveness):
            case True:
                return self._interrupt()
            case False:
                return [self._go_on()]
            case None:
                return []

    def _agrees(self, text: str) -> bool:
        """Return whether the words are a backchannel. At the agent's end they may be an answer instead."""
        return not self._ending and normalise(text) != "" and is_backchannel(text) and not self._echoed(text)

    def _echoed(self, text: str) -> bool:
        """Return whether the words are the agent's echo. A short answer may repeat some of its last words."""
        over = self.floor is Floor.OVERLAP and not self._ending
        return not self.manual and is_echo(text, self.saying, 1 if over else ECHO_WORDS)

    def _interrupt(self) -> list[FloorEvent]:
        """Turn an overlap into a turn of the user."""
        if self._onset - self._answered_at < _samples(TOO_SOON_MS):
            now = max(self._patience, self.options.patience)
            self._patience = min(now * MORE_PATIENCE, MOST_PATIENCE)
            self._heard_out = 0
        if self.pause is None:
            self.floor = Floor.USER
            return [SpeechStarted(self._onset)]
        self.floor = Floor.PAUSE
        events: list[FloorEvent] = [SpeechStarted(self._onset), PauseStarted(self.pause)]
        return [*events, Transcribed(self._final), *self._decide()] if self._final else events

    def _go_on(self) -> FloorEvent:
        event = OverlapEnded((self._overlap_text or "").strip() if self._final else "")
        self._release(Floor.NOBODY if self._agent_finished else Floor.AGENT)
        return event

    def _while_talking(self, voiced: bool) -> list[FloorEvent]:
        if voiced:
            self._voiced_until = self.now
        self._forced = self.now - self._onset >= _samples(self.options.max_turn_ms)
        if self._forced or self.now - self._voiced_until >= _samples(self.options.pause_ms):
            return [self._pause()]
        return []

    def _pause(self) -> FloorEvent:
        self.floor = Floor.PAUSE
        self.pause = self.quiet = self._voiced_until
        self._run = 0
        return PauseStarted(self.pause)

    def _while_pausing(self) -> list[FloorEvent]:
        if self._run < _samples(self.options.resume_ms) or self._forced:
            return self._decide()
        self.floor = Floor.USER
        self.pause = self._final = None
        self._answers = []
        self._voiced_until = self.now
        return [TurnResumed()]

    def _decide(self) -> list[FloorEvent]:
        if self.pause is None or self._final is None:
            return []
        silence, wait = 0 if self._run else max(self.now, self.reached) - self.quiet, _samples(self._wait())
        judged = self._answers or not self.has_judge
        asking = self.pause - self.quiet + _samples(ANSWER_MS)  # the pause must be noticed first
        least = wait if judged else max(wait, min(asking, _samples(self.options.max_wait_ms)))
        over = self._forced or silence >= least
        soon = over or silence >= wait - _samples(EAGER_MS)
        events: list[FloorEvent] = []
        if (
            self._final
            and self._eager_for != self.pause
            and (soon or not turn_end.wants_more(self._final, self.asked, self._end_probability))
        ):
            self._eager_for = self.pause
            events.append(EagerEndOfTurn(self._final))
        if not over:
            return events
        event = EndOfTurn(self._final, self.pause) if self._final else NothingSaid(self.pause)
        if self._final and not self._forced:
            self._answered_at = self.now
            self._heard_out += 1
            if self._heard_out > HEARD_OUT_TURNS:
                self._patience, self._heard_out = 0.0, 0
        self._release(Floor.AGENT if self._final else Floor.NOBODY)
        return [*events, event]

    def _wait(self) -> float:
        longest = self.options.max_wait_ms
        # Without words there is nothing to answer yet, but they may follow a hesitant start.
        if not self._final:
            return longest
        known = turn_end.Pause(self._answers, self._final, asked=self.asked, over=self._end_probability)
        patience, most = self.options.patience, turn_end.long_ms(self.options.patience)
        if self._patience > patience:
            patience, most = self._patience, max(most, turn_end.LONG_CUT_OFF_MS)
        return min(max(turn_end.wait_ms(known, patience, most=most), self.options.min_wait_ms), longest)

    def _release(self, floor: Floor) -> None:
        if self.pause is not None:
            self._free_from = self.pause  # earlier audio belongs to the turn that ends here
        self.floor = floor
        self.turn_start = self.pause = self._final = self._overlap_text = None
        self._answers = []
        self._forced = self._ending = self._agent_finished = False
        self._run = 0


def _samples(ms: float) -> int:
    return int(ms * RATE / 1000)
