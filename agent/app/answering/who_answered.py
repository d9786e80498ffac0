"""Decides who answered an outgoing call, from the times of speech and pauses, the words, and beeps.

It has no clock and does no I/O; positions are samples at 16 kHz. The rules, in this order:

    words of a machine (``phrases``)                                   at once; an announcement at its end
    a beep                                                             voicemail; three that rise: unavailable
    speech for long without waiting for an answer                      voicemail
    speech, then silence: a person waits for an answer                 human
    nothing is heard                                                   unknown

A person who is taken for a machine is lost, so every doubt that lasts counts as a person. Asterisk's AMD
decides by length alone: a greeting over 1.5 s is a machine, 0.8 s of silence a human (amd.conf.sample);
Twilio's defaults are 2.4 s and 1.2 s (twilio.com/docs/voice/answering-machine-detection). People who answer
for a company speak longer than either, so here the words count first.
"""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.agent.app.answering.beep import Beep
from rejoinder.agent.app.answering.phrases import AnsweredBy, Sign, signs
from rejoinder.pipeline import RATE

NOTHING_S = 5.0
"""Silence from the start after which it is unknown who answered, in seconds; Twilio waits as long."""
LONG_S = 7.5
"""Speech without waiting for an answer that is a machine's, in seconds."""
LONG_HUMAN_S = 12.0
"""The same if words of a person were among it."""
SHORT_S = 1.6
"""Longest speech that is a short answer, such as "hello", in seconds."""
WAIT_ASKED_S = 0.5
"""Silence after the words of a person: a question, or "speaking"."""
WAIT_SHORT_S = 0.8
"""Silence after a short answer without a sign, "Hi." included: a recording may pause there."""
WAIT_S = 1.2
"""Silence after a longer answer without a sign."""
WAIT_RECORDED_S = 2.2
"""Silence after words that recordings begin with, and some people: "thank you for calling Mario's"."""
END_S = 1.2
"""Silence that ends an announcement: a mailbox may follow before."""
TRANSCRIPT_S = 1.8
"""Longest wait for the words before a silence, in seconds."""
BEEP_ALONE_S = 1.5
"""Silence after a beep without speech that makes it a mailbox's."""
LIMIT_S = 20.0
"""Time after which it stays unknown who answered, and no verdict is revised."""
TONES_APART_S = 0.4
"""Longest gap within the special information tones: three that rise, before "the number you have dialled"
(ITU-T E.180)."""
MACHINE = {
    Sign.SURE_VOICEMAIL: AnsweredBy.VOICEMAIL,
    Sign.IVR: AnsweredBy.IVR,
    Sign.VOICEMAIL: AnsweredBy.VOICEMAIL,
    Sign.UNAVAILABLE: AnsweredBy.UNAVAILABLE,
}
"""What the signs of a machine say, the surest first."""


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Who answered a call. reason: why, for the log. at: the sample at which it was certain."""

    by: AnsweredBy
    reason: str
    at: int

    @property
    def seconds(self) -> float:
        """Seconds from the start of the call until it was certain."""
        return self.at / RATE


class WhoAnswered:
    """Takes what is heard at the start of one call; ``heard`` returns the answer once it is certain.

    After a human, words of a machine or a beep still change the answer until ``LIMIT_S``: a greeting may
    begin with "Hello" and a pause.
    """

    def __init__(self) -> None:
        self.answer: CallAnswer | None = None
        self._speaking_since: int | None = None
        self._silent_since = 0
        self._voiced = 0
        self._ended: list[str] = []
        self._turn = ""
        self._final = True
        self._signs: dict[Sign, str] = {}
        self._beeps: list[Beep] = []
        self._beep_ends_speech = False

    def speech(self, at: int) -> None:
        """Take the start of speech, or its resumption after a pause."""
        if self._speaking_since is None:
            self._speaking_since, self._final = at, False

    def pause(self, at: int) -> None:
        """Take the end of speech."""
        if self._speaking_since is not None:
            self._voiced += max(0, at - self._speaking_since)
            self._speaking_since, self._silent_since = None, at

    def words(self, text: str, final: bool) -> None:
        """Take the words of the turn so far. final: whether they are all words before the pause."""
        self._turn, self._final = text, self._final or final
        self._signs = signs(" ".join([*self._ended, text]))

    def turn_over(self, text: str) -> None:
        """Take the end of a turn with its words; "" for a noise, which is no speech."""
        if text:
            self._ended.append(text)
            self.words("", final=True)
        elif not self._ended:
            self._voiced, self._final = 0, True

    def beep(self, beep: Beep) -> None:
        """Take a beep that has ended."""
        self._beeps.append(beep)
        self._beep_ends_speech |= self._talk(beep.start) > 0

    def heard(self, now: int) -> CallAnswer | None:
        """Return the answer if it is new: it is certain by sample ``now``, or has changed."""
        if now > LIMIT_S * RATE and self.answer:
            return None
        by, reason = self._machine(now) or ("", "")
        if self.answer is None and not by:
            by, reason = self._human_or_unknown(now) or ("", "")
        changes = self.answer is None or (self.answer.by is AnsweredBy.HUMAN and self._is_machine)
        if not by or not changes:
            return None
        self.answer = CallAnswer(AnsweredBy(by), reason, now)
        return self.answer

    def give_up(self, now: int) -> CallAnswer:
        """Return that it is unknown who answered: the line sends no audio that could tell it."""
        self.answer = CallAnswer(AnsweredBy.UNKNOWN, "the line sent no more audio", now)
        return self.answer

    @property
    def _is_machine(self) -> bool:
        """Whether words or a beep say that it is a machine: long speech alone does not revise an answer."""
        return self._beep_ends_speech or not self._signs.keys().isdisjoint(MACHINE)

    def _machine(self, now: int) -> tuple[AnsweredBy, str] | None:
        for sign, kind in MACHINE.items():
            ended = sign is not Sign.UNAVAILABLE or self._silence(now) > END_S * RATE
            if sign in self._signs and ended:
                return kind, f"it said {self._signs[sign]!r}"
        if verdict := self._by_beep(now):
            return verdict
        longest = LONG_HUMAN_S if Sign.HUMAN in self._signs else LONG_S
        if self._talk(now) > longest * RATE:
            return AnsweredBy.VOICEMAIL, f"it spoke for {longest:g} s without waiting for an answer"
        return None

    def _by_beep(self, now: int) -> tuple[AnsweredBy, str] | None:
        if not self._beeps:
            return None
        last = self._beeps[-1]
        rising = [beep.hz for beep in self._beeps[-3:]]
        if len(rising) == 3 and rising == sorted(rising) and rising[2] > 1.5 * rising[0]:
            return AnsweredBy.UNAVAILABLE, "the line played the tones of a call that failed"
        if now - last.end < TONES_APART_S * RATE:
            return None
        if self._beep_ends_speech:
            return AnsweredBy.VOICEMAIL, f"a beep of {last.hz:.0f} Hz after speech"
        if now - last.end > BEEP_ALONE_S * RATE and not self._talk(now):
            return AnsweredBy.VOICEMAIL, f"a beep of {last.hz:.0f} Hz, then silence"
        return None

    def _human_or_unknown(self, now: int) -> tuple[AnsweredBy, str] | None:
        if now > LIMIT_S * RATE:
            return AnsweredBy.UNKNOWN, f"nothing was certain within {LIMIT_S:g} s"
        if not self._voiced and self._speaking_since is None:
            if now > NOTHING_S * RATE and not self._beeps:
                return AnsweredBy.UNKNOWN, f"nothing was said for {NOTHING_S:g} s"
            return None
        silence = self._silence(now)
        if self._beep_ends_speech or (self._beeps and now - self._beeps[-1].end < TONES_APART_S * RATE):
            return None
        if not self._final and silence < TRANSCRIPT_S * RATE:
            return None
        if Sign.UNAVAILABLE in self._signs or silence <= self._wait() * RATE:
            return None
        return (
            AnsweredBy.HUMAN,
            f"{self._voiced / RATE:.1f} s of speech, then {silence / RATE:.1f} s of silence",
        )

    def _wait(self) -> float:
        if Sign.RECORDED in self._signs and Sign.HUMAN not in self._signs:
            return WAIT_RECORDED_S
        if Sign.HUMAN in self._signs:
            return WAIT_ASKED_S
        return WAIT_SHORT_S if self._voiced <= SHORT_S * RATE else WAIT_S

    def _silence(self, now: int) -> int:
        """Return the samples of silence since the last speech, 0 while there is speech."""
        return 0 if self._speaking_since is not None else max(0, now - self._silent_since)

    def _talk(self, now: int) -> int:
        """Return the samples of speech so far."""
        running = max(0, now - self._speaking_since) if self._speaking_since is not None else 0
        return self._voiced + running
