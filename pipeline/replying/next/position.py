"""How far a reply was heard, and how another process goes on with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rejoinder.pipeline.audio.chunk import Words
from rejoinder.pipeline.options import ReplyRequest
from rejoinder.pipeline.replying.playout import Playout, SpokenClause
from rejoinder.pipeline.replying.reply import Reply

TIMED_SECONDS = 10.0
"""Seconds before the play-out position whose words keep their times: a client's own position is this near."""
LOST_CUE = "(The line was lost for a moment. Go on with what you were saying, from where you stopped.)"
"""Asks the language model for the rest of a reply that it had not written to its end."""

ClauseTimes = tuple[str, float, float | None, Words]
"""A clause: text, first second, last second (None while its audio is sent), times of its words."""


@dataclass(frozen=True, slots=True)
class ReplyPosition:
    """The position of the newest reply. Times are in seconds from the start of its audio.

    turn: its number. sent: seconds of audio sent. heard: the words that were heard, by the play-out clock.
    before: the words of the clauses that ended long ago. clauses: the others whose audio has begun.
    written: the words of the reply as far as they are known. whole: whether it has no others. stopped:
    whether it was cut off or failed: nothing of it is left to say. instructions, cue, speaks,
    interruptible: of its request.
    """

    turn: int
    sent: float
    heard: str
    before: str
    clauses: Sequence[ClauseTimes]
    written: str
    whole: bool
    stopped: bool
    instructions: str | None = None
    cue: str = ""
    speaks: bool | None = None
    interruptible: bool = True

    def heard_until(self, played: float) -> str:
        """Return the words heard in the first ``played`` seconds, as the client reports them.

        They may be more than were sent when the position was taken. Text without audio has been read.
        """
        if not (self.clauses or self.before):
            return self.heard
        known = (
            SpokenClause(text, start, math.inf if end is None else end, words)
            for text, start, end, words in self.clauses
        )
        return f"{self.before} {Playout.of(known, max(self.sent, played)).text(played)}".strip()

    def requests(self, heard: str) -> list[ReplyRequest]:
        """Return the requests, one after the other, that let the agent go on behind the heard words.

        The words that are known are said as they were written, and the language model adds those that are
        not. A reply that was not heard at all, and of which no word is known, is asked for again.
        """
        if self.stopped:
            return []
        rest = unheard(self.written, heard)
        same = ReplyRequest(speaks=self.speaks, interruptible=self.interruptible)
        known = [replace(same, words=rest)] if rest else []
        if self.whole:
            return known
        cue = LOST_CUE if self.written else self.cue
        return [*known, replace(same, instructions=self.instructions, cue=cue)]


def position_of(reply: Reply, now: float, is_over: bool) -> ReplyPosition:
    """Return the position of a reply at loop time ``now``. is_over: whether it was cut off."""
    playout, outcome = reply.output.playout, reply.outcome
    played = playout.played(now)
    early = [clause for clause in playout.clauses if clause.end < played - TIMED_SECONDS]
    spoken = " ".join(clause.text for clause in playout.clauses) or reply.output.heard(played)
    written = reply.settings.words or reply.generation.written
    if reply.settings.is_filler:
        written, whole = "", True
    elif written is None or reply.settings.guard or outcome.status == "incomplete":
        written = spoken  # what no guard has passed is not said
        whole = outcome.ended and outcome.status != "cancelled"
    else:
        whole = outcome.ended or not reply.generation.calls  # calls enter the history at the end
    times = [
        (clause.text, clause.start, None if math.isinf(clause.end) else clause.end, clause.words)
        for clause in playout.clauses[len(early) :]
    ]
    return ReplyPosition(
        reply.id,
        playout.seconds,
        reply.output.heard(played),
        " ".join(clause.text for clause in early),
        times,
        written,
        whole,
        is_over or outcome.failed or outcome.excused is not None or outcome.refused != "",
        reply.request.instructions,
        reply.request.cue,
        reply.request.speaks,
        reply.request.interruptible,
    )


def unheard(written: str, heard: str) -> str:
    """Return the words behind those that were heard.

    heard: the first words, with other blanks, and without clauses that have nothing to speak, such as "---".
    """
    left = sum(map(str.isalnum, heard))
    ends = heard.strip() != ""
    for place, character in enumerate(written):
        if not left and (not ends or character.isspace() or character.isalnum()):
            return written[place:].strip()
        left -= character.isalnum()
    return ""
