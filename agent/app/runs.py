"""Decides when the results of tools enter the history, and when the agent speaks about them.

The rules, in the order in which they matter:

- A result enters the history as soon as it is there, so that every later prompt has it.
- The agent speaks about a result when no side has the floor. It never speaks over the caller, and never
  twice: a reply that began after the result entered the history has told it.
- Words that a tool says (``Call.say``) tell no result. A result waits until they are spoken.
- The agent reports the results of one reply's calls together. A run that takes longer than ``SLOW_S``, or
  that is in the background from the start, does not hold up the others.
- A model whose calls go wrong in ``MOST_MENDS`` replies in a row, or that calls tools in ``MOST_ROUNDS``
  replies in a row, answers without tools until the caller speaks. So it cannot call them for ever.
- Words of the caller cancel the runs that the conversation waits for, except those that are kept. The model
  reads that a run was cancelled, and can call the tool again. Noise cancels nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOW_S = 4.0
"""Seconds after which the conversation no longer waits for a run."""
CANCELLED = (
    "(Cancelled: the caller spoke before there was a result. Call the tool again if it is still needed.)"
)
"""The result of a cancelled run."""

MOST_MENDS = 5
"""Most replies in a row whose calls go wrong, before the model has to answer without tools."""
MOST_ROUNDS = 20
"""Most replies in a row that call tools, before the model has to answer without them."""
GIVE_UP = "{error} Call no tool now: tell the caller that it did not work."
"""The result of the last call that goes wrong."""


@dataclass(frozen=True, slots=True)
class InsertResult:
    """Insert the result of a call into the history."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Cancel the run of a call."""

    id: str


@dataclass(frozen=True, slots=True)
class TellResults:
    """Start a reply: there are results that the caller does not know. tools: whether it may call tools."""

    tools: bool = True


Action = InsertResult | CancelRun | TellResults


@dataclass(slots=True)
class Run:
    """A run in progress.

    reply: the number of the reply that called the tool. slow_at: time from which the conversation no longer
    waits for it; None if it does not wait now.
    """

    id: str
    reply: int
    slow_at: float | None
    keep_on_interrupt: bool


class ToolRuns:
    """The runs of one call. It does no I/O and has no clock: times are arguments, in seconds.

    The methods return what is to be done, in order.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._seen: set[str] = set()
        self._untold = False
        self._replying = self._talking = False
        self._leaving = 0
        self._calling: set[int] = set()
        self._mending: set[int] = set()

    @property
    def running(self) -> set[str]:
        """The calls whose runs are in progress."""
        return set(self._runs)

    @property
    def waiting(self) -> bool:
        """Whether the conversation waits for a run."""
        return any(run.slow_at is not None for run in self._runs.values())

    @property
    def hangs_up(self) -> bool:
        """Whether the agent is about to hang up."""
        return self._leaving > 0

    @property
    def kept(self) -> set[str]:
        """The calls whose runs go on after the call."""
        return {run.id for run in self._runs.values() if run.keep_on_interrupt}

    @property
    def due(self) -> float | None:
        """The time at which ``passed`` has something to do, None for never."""
        if self._leaving:
            return None
        times = [run.slow_at for run in self._runs.values() if run.slow_at is not None]
        return min(times, default=None)

    def called(self, id: str, reply: int, now: float, background: bool, keep_on_interrupt: bool) -> bool:
        """Record that a reply calls a tool; return whether to run it. A call id runs at most once."""
        if id in self._seen:
            return False
        self._seen.add(id)
        self._calling.add(reply)
        self._runs[id] = Run(id, reply, None if background else now + SLOW_S, keep_on_interrupt)
        self._untold = self._untold or background  # the agent says that it has begun
        return True

    def returned(self, id: str, text: str, wrong: bool = False) -> list[Action]:
        """Take the result of a run; a run that was cancelled has none.

        wrong: whether it is an error that the model can mend.
        """
        if (run := self._runs.pop(id, None)) is None:
            return []
        self._untold = True
        if not wrong:
            self._mending.clear()
        else:
            self._mending.add(run.reply)
            text = text if self._may_call else GIVE_UP.format(error=text)
        return [InsertResult(id, text), *self._tell()]

    def passed(self, now: float) -> list[Action]:
        """Stop waiting for the runs that are slow at time ``now``, unless the agent hangs up."""
        if self._leaving:
            return []
        for run in self._runs.values():
            if run.slow_at is not None and run.slow_at <= now:
                run.slow_at, self._untold = None, True
        return self._tell()

    def leaving(self, begun: bool) -> None:
        """Record that the agent begins to hang up, or no longer does."""
        self._leaving += 1 if begun else -1

    def saying(self) -> None:
        """Record that words of a tool are about to be spoken, in a reply without a prompt."""
        self._replying = True

    def reply_started(self, has_prompt: bool = True) -> None:
        """Record that a reply begins. has_prompt: whether it has one, with all results in the history."""
        self._replying, self._untold = True, self._untold and not has_prompt

    def reply_done(self) -> list[Action]:
        """Record that the reply has ended, with all its calls."""
        self._replying = False
        return self._tell()

    def user_started(self) -> None:
        """Record that the caller takes the floor."""
        self._talking = True

    def user_words(self) -> list[Action]:
        """Record that the caller has said words: cancel the runs that the conversation waits for."""
        self._begin_anew()
        actions: list[Action] = []
        for run in list(self._runs.values()):
            if run.slow_at is None:
                continue
            if run.keep_on_interrupt:
                run.slow_at = None
            else:
                del self._runs[run.id]
                self._untold = True
                actions += [CancelRun(run.id), InsertResult(run.id, CANCELLED)]
        return actions

    def user_done(self, words: bool) -> list[Action]:
        """Record the end of the caller's turn. words: whether it had any; a reply to them follows."""
        self._talking = False
        if words:
            self._begin_anew()
        return [] if words else self._tell()

    def _tell(self) -> list[Action]:
        if self._untold and not (self.waiting or self._replying or self._talking):
            self._untold = False
            return [TellResults(self._may_call)]
        return []

    @property
    def _may_call(self) -> bool:
        return len(self._mending) < MOST_MENDS and len(self._calling) < MOST_ROUNDS

    def _begin_anew(self) -> None:
        self._calling.clear()
        self._mending.clear()
