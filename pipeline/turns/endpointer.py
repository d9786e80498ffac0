"""Who has the floor, decided from speech probabilities, transcripts and a turn model.

The table, with time counted in samples received, so that the same audio gives the same events however it is
cut and however late it arrives:

    floor   event                                                     next    answer
    ------  --------------------------------------------------------  ------  --------------
    NOBODY  speech for ``start_ms``                                   USER    SpeechStarted
    AGENT   speech for ``start_ms``, the agent may not be stopped     USER    SpeechStarted
    AGENT   speech for ``notice_ms``, it may be stopped               OVERLAP OverlapStarted
    OVERLAP a noise or a backchannel (see interruption.py)            AGENT   OverlapEnded
    OVERLAP an interruption, still spoken                             USER    SpeechStarted
    OVERLAP an interruption, over already                             PAUSE   SpeechStarted, PauseStarted
    OVERLAP the agent is stopped otherwise, and it was a noise        NOBODY  OverlapEnded
    USER    silence for ``pause_ms``, or talk for ``max_turn_ms``     PAUSE   PauseStarted
    PAUSE   the final transcript has words                            PAUSE   Transcribed
    PAUSE   its words sound whole, or it may be over in ``EAGER_MS``  PAUSE   EagerEndOfTurn
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
from rejoinder.pipeline.turns.interruption import Overlap, is_backchannel, is_echo, is_interruption, kindest

ECHO_WORDS = 5
"""So many of the agent's last words are its echo; fewer may be an answer: "tomorrow at ten"."""
TOO_SOON_MS = 1_000
"""Whoever interrupts an answer before it is so old had not finished, and needs more time than others."""
MORE_PATIENCE, MOST_PATIENCE, UNHARMED = 3.0, 8.0, 3
"""How much more patience they get, up to which, and until how many answers have been heard out."""
LAG_MS = 96
"""So long voice activity goes on at most when the level says that a "mm-hm" is over."""
EAGER_MS = 250
"""So long an answer's first sound takes (docs/lab/latency.md): words that want more get one no sooner."""
ANSWER_MS = 400
"""So long a turn model's first answer is waited for: on a busy machine it comes late, and knows more."""


class Floor(Enum):
    """Who is speaking, or about to."""

    NOBODY = auto()
    USER = auto()
    PAUSE = auto()
    AGENT = auto()
    OVERLAP = auto()


class Endpointer:
    """The floor of one session. Holds no clock and does no I/O.

    now: samples judged so far, or cut off by the client: what arrives from before it counts no more.
    reached: samples received so far, where nobody was heard in the last whole window; at least ``now``.
    turn_start: first sample that belongs to the user's turn, or may, None between turns.
    pause: end of the last voiced sample while the user is silent in a turn, else None.
    quiet: the sample from which its silence counts: ``pause``, or sooner where the level fell before that.
    asked: what the agent said last, as heard: whoever is asked to spell something is not done after a letter.
    saying: what the agent says at about the onset, "" where the microphone does not hear it.
    unlearnt: whether nobody knows yet what the microphone hears of the agent.
    manual: whether the client says where turns end; then all audio between two ends is the user's turn.
    yields: whether speech can stop the agent. has_judge: whether a turn model is asked.
    """

    def __init__(self, options: Endpointing | None = None) -> None:
        self.options = options or Endpointing()
        self.floor = Floor.NOBODY
        self.manual = False
        self.yields = True
        self.has_judge = False
        self.now = self.reached = 0
        self.turn_start: int | None = None
        self.pause: int | None = None
        self.quiet = 0
        self.asked = self.saying = ""
        self.unlearnt = False
        self._free_from = 0
        self._by_hand_from = 0
        self._onset = 0
        self._voiced_until = 0
        self._run = 0
        self._forced = False
        self._final: str | None = None
        self._sounds_over: float | None = None
        self._answers: list[float] = []
        self._voiced = 0
        self._so_far: str | None = None
        self._ending = self._alone = False
        self._begun_for: int | None = None
        self._answered_at = -_samples(TOO_SOON_MS)
        self._patience, self._unharmed = 0.0, 0

    @property
    def talking(self) -> bool:
        """Tell whether the user speaks at this very moment, so that no pause is about to be noticed."""
        return self._open_turn and self._voiced_until >= self.now

    @property
    def still(self) -> bool:
        """Tell whether nobody speaks, and nothing was heard that may become a turn."""
        return self.floor is Floor.NOBODY and not self._run and not self.manual

    @property
    def _open_turn(self) -> bool:
        return self.floor in (Floor.USER, Floor.OVERLAP) and self.pause is None

    def vad(self, end: int, probability: float) -> list[FloorEvent]:
        """Take the speech probability of the audio up to sample ``end``."""
        if end <= self.now:
            return []
        step, self.now = end - self.now, end
        self.reached = max(self.reached, end)
        if self.manual:
            if self.floor in (Floor.NOBODY, Floor.AGENT):
                self._open(max(self._free_from, self._by_hand_from))
            self._voiced_until = end
            return []
        self._by_hand_from = end
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
        """Take that a pause has lasted until sample ``end``, as far as the last whole window tells.

        Windows are 32 ms apart, and who has waited long enough need not wait for the next one.
        """
        self.reached = max(self.reached, end)
        return self._decide() if self.floor is Floor.PAUSE else []

    def transcript(self, transcript: Transcript, hushed: bool = False) -> list[FloorEvent]:
        """Take a transcript; partial ones count while the agent is spoken over.

        A final one that does not reach the current pause is ignored. hushed: the voice has fallen silent by
        its level, which is known sooner than by voice activity.
        """
        if self.floor is Floor.OVERLAP and transcript.end > self._onset:
            plain = self._ending or self._echoed(transcript.text)
            self._so_far = transcript.text if plain else kindest(transcript)
            if hushed and self.pause is None and self._agrees(self._so_far):
                self._final = transcript.text.strip()
                event = self._go_on()
                self._run = -_samples(LAG_MS)
                return [event]
            if self.pause is not None and transcript.is_final and transcript.end >= self.pause:
                self._final, self._sounds_over = transcript.text.strip(), transcript.over
            return self._doubt()
        if self.pause is None or not transcript.is_final or transcript.end < self.pause:
            return []
        self._final = text = "" if self._echoed(transcript.text) else transcript.text.strip()
        self._sounds_over = transcript.over
        return [Transcribed(text), *self._decide()] if text else self._decide()

    def fell(self, pause: int, quiet: int) -> None:
        """Take that the pause that began at ``pause`` was quiet by the level from sample ``quiet`` on."""
        if pause == self.pause:
            self.quiet = min(quiet, pause)

    def judged(self, pause: int, probability: float) -> list[FloorEvent]:
        """Take the turn model's answer about the pause that began at sample ``pause``."""
        if pause != self.pause:
            return []
        self._answers.append(probability)
        return self._decide() if self.floor is Floor.PAUSE else []

    def agent_done(self) -> None:
        """Note that the agent has nothing more to say."""
        if self.floor is Floor.AGENT:
            self.floor = Floor.NOBODY
        self._alone = self._ending = self.floor is Floor.OVERLAP

    def agent_ends(self) -> None:
        """Note that the agent is at its last words: what is said over them may be an answer."""
        self._ending = True

    def agent_speaks(self) -> None:
        """Note that the agent takes the floor without having been asked."""
        if self.floor is Floor.NOBODY:
            self.floor = Floor.AGENT
        self._alone = self._ending = False

    def dismiss(self) -> list[FloorEvent]:
        """Let the agent go on, whatever is said over it."""
        return [self._go_on()] if self.floor is Floor.OVERLAP else []

    def end_turn(self, at: int) -> list[FloorEvent]:
        """End the user's turn at sample ``at`` as soon as its transcript is final, whatever the silence."""
        start = max(self._free_from, self._by_hand_from)
        if self.manual and self.floor in (Floor.NOBODY, Floor.AGENT) and at > start:
            self._open(start)  # its audio is still on its way here, or came while the last turn was ending
        begun = self._interrupt() if self.floor is Floor.OVERLAP else []
        if self.floor is Floor.USER:
            self.now = max(self.now, at)
            self._voiced_until = at
            self._forced = True
            return [*begun, self._pause()]
        self._forced = self.floor is Floor.PAUSE
        return begun + self._decide()

    def abandon(self, at: int) -> list[FloorEvent]:
        """Drop the user's turn as if nothing had been said until sample ``at``."""
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
        """Decide whether the agent is interrupted, as soon as that is known."""
        over = self.pause is not None and not self._run
        heard = Overlap(
            voiced_ms=self._voiced * 1000 / RATE,
            silent_ms=(self.now - self._voiced_until) * 1000 / RATE if over else 0.0,
            text=self._so_far,
            is_final=self._final is not None,
            ending=self._ending,
            echoing=bool(self.saying),
            unlearnt=self.unlearnt,
            echo=self._so_far is not None and self._echoed(self._so_far),
        )
        match is_interruption(heard, self.options.start_ms, self.options.assertiveness):
            case True:
                return self._interrupt()
            case False:
                return [self._go_on()]
            case None:
                return []

    def _agrees(self, text: str) -> bool:
        """Tell whether words over the agent ask it to go on; at its end they may be an answer."""
        return not self._ending and normalise(text) != "" and is_backchannel(text) and not self._echoed(text)

    def _echoed(self, text: str) -> bool:
        """Tell whether the agent hears itself; whoever answers it may repeat some of its last words."""
        over = self.floor is Floor.OVERLAP and not self._ending
        return not self.manual and is_echo(text, self.saying, 1 if over else ECHO_WORDS)

    def _interrupt(self) -> list[FloorEvent]:
        """Make an ordinary turn of what is said over the agent."""
        if self._onset - self._answered_at < _samples(TOO_SOON_MS):
            now = max(self._patience, self.options.patience)
            self._patience = min(now * MORE_PATIENCE, MOST_PATIENCE)
            self._unharmed = 0
        if self.pause is None:
            self.floor = Floor.USER
            return [SpeechStarted(self._onset)]
        self.floor = Floor.PAUSE
        events: list[FloorEvent] = [SpeechStarted(self._onset), PauseStarted(self.pause)]
        return [*events, Transcribed(self._final), *self._decide()] if self._final else events

    def _go_on(self) -> FloorEvent:
        event = OverlapEnded((self._so_far or "").strip() if self._final else "")
        self._release(Floor.NOBODY if self._alone else Floor.AGENT)
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
            and self._begun_for != self.pause
            and (soon or not turn_end.wants_more(self._final, self.asked, self._sounds_over))
        ):
            self._begun_for = self.pause
            events.append(EagerEndOfTurn(self._final))
        if not over:
            return events
        event = EndOfTurn(self._final, self.pause) if self._final else NothingSaid(self.pause)
        if self._final and not self._forced:
            self._answered_at = self.now
            self._unharmed += 1
            if self._unharmed > UNHARMED:
                self._patience, self._unharmed = 0.0, 0
        self._release(Floor.AGENT if self._final else Floor.NOBODY)
        return [*events, event]

    def _wait(self) -> float:
        longest = self.options.max_wait_ms
        # Without words there is nothing to answer, but they may still come: a hesitant start is not a noise.
        if not self._final:
            return longest
        known = turn_end.Pause(self._answers, self._final, asked=self.asked, over=self._sounds_over)
        patience, most = self.options.patience, turn_end.long_ms(self.options.patience)
        if self._patience > patience:
            patience, most = self._patience, max(most, turn_end.LONG_HARMED_MS)
        return min(max(turn_end.wait_ms(known, patience, most=most), self.options.min_wait_ms), longest)

    def _release(self, floor: Floor) -> None:
        if self.pause is not None:
            self._free_from = self.pause  # what came before was said in the turn that ends here
        self.floor = floor
        self.turn_start = self.pause = self._final = self._so_far = None
        self._answers = []
        self._forced = self._ending = self._alone = False
        self._run = 0


def _samples(ms: float) -> int:
    return int(ms * RATE / 1000)
