"""The timer of a call: the agent prompts a silent user, and a call that lasts too long ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from rejoinder.pipeline.budget import CallBudget
from rejoinder.pipeline.errors import CallOver
from rejoinder.pipeline.options import Options

LOOK_SECONDS = 0.1
"""Interval between two checks."""
GRACE_SECONDS = 10.0
"""Most time to finish speaking after ``max_call_s``, and then for the last words, in seconds."""

PARTING_SECONDS = 60.0
"""Most time from the end of a budget to the end of the call, also where no side is ever silent."""


class Due(Enum):
    """The action that is due: prompt the user, say goodbye, or end the call."""

    PROMPT = auto()
    GOODBYE = auto()
    END = auto()


class CallTimer:
    """Decides what is due from the length of the silence and of the call. Times are in seconds.

    prompts: number of prompts since the user last spoke. words: the last words, once they are due, "" for
    none. reason: why the call ends, once that is due. silent: whether it ends because the user says nothing.
    """

    def __init__(self) -> None:
        self.prompts = 0
        self.words = self.reason = ""
        self._began: float | None = None
        self._since: float | None = None
        self._spent: float | None = None
        self._spent_parted: float | None = None
        self._parted: float | None = None
        self.silent = False

    @property
    def parting(self) -> bool:
        """Whether the call is about to end."""
        return self._parted is not None

    def look(self, now: float, quiet: bool, options: Options, awaited: bool = False) -> Due | None:
        """Return the action that is due, None for none. The first call of this method starts the clock.

        now: the time. quiet: whether neither side has the floor. awaited: whether the user waits for the
        result of a tool, which is no silence of theirs.
        """
        self._began = now if self._began is None else self._began
        self._since = (now if self._since is None else self._since) if quiet and not awaited else None
        if self._parted is not None:
            return Due.END if quiet or now - self._parted >= GRACE_SECONDS else None
        if (budget := options.budget) and budget.over and (due := self._out_of_budget(now, quiet, budget)):
            return due
        over = now - self._began - options.max_call_s
        if options.max_call_s and over >= (0.0 if quiet else GRACE_SECONDS):
            return self._part(now, longest_call(options.max_call_s), options)
        if self._since is None or not options.idle_s or now - self._since < options.idle_s:
            return None
        if options.create_response and self.prompts < options.idle_prompts:
            self.prompts += 1
            self._since = None
            return Due.PROMPT
        if options.idle_ends and self.prompts >= options.idle_prompts:
            self.silent = True
            return self._part(now, longest_silence(options.idle_s), options)
        return None

    def _part(self, now: float, reason: str, options: Options) -> Due:
        """Return what is due in a call that has reached a limit: the last words, or its end."""
        self.reason, self.words, self._parted = reason, options.last_words, now
        said = options.budget is not None and options.budget.parted
        return Due.GOODBYE if self.words.strip() and not said else Due.END

    def _out_of_budget(self, now: float, quiet: bool, budget: CallBudget) -> Due | None:
        """Return what is due in a call whose budget is spent; it ends in any case at some time."""
        self.reason, self.words = f"the budget of the {budget.spent or 'day'} is spent", budget.words
        self._spent = now if self._spent is None else self._spent
        if self._spent_parted is None and budget.parted:
            self._spent_parted = now
        late = now - self._spent >= PARTING_SECONDS
        if late or (self._spent_parted is not None and now - self._spent_parted >= GRACE_SECONDS):
            return Due.END
        if not quiet:
            return None
        return Due.END if budget.parted or not budget.words else Due.GOODBYE

    def user_began(self) -> None:
        """Record that the user begins to speak: a silence ends no call then."""
        if self.silent:
            self._parted, self.silent = None, False

    def user_spoke(self) -> None:
        """Record that the user has spoken or typed, and reset ``prompts``."""
        self.user_began()
        self.prompts = 0


def longest_call(seconds: float) -> str:
    """Return the reason of a call that has reached its longest duration."""
    return f"the call has reached its longest duration of {seconds:g} s"


def longest_silence(seconds: float) -> str:
    """Return the reason of a call whose user says nothing more."""
    return f"the caller was asked, and has said nothing for another {seconds:g} s"


async def watch(
    timer: CallTimer,
    options: Callable[[], Options],
    is_quiet: Callable[[], bool],
    awaits_tool: Callable[[], bool],
    prompt: Callable[[float], None],
    goodbye: Callable[[str], None],
    configured: asyncio.Event,
) -> None:
    """Check every ``LOOK_SECONDS`` what is due, and prompt the user after a silence.

    prompt: called with the length of the silence. goodbye: called with the last words. configured: set when
    the options have changed. Raises CallOver when the call has reached ``max_call_s``, when its budget is
    spent, and after the last silence where ``idle_ends``. Cancelling ends the checks.
    """
    loop = asyncio.get_running_loop()
    while True:
        wanted = options()
        if not (wanted.idle_s or wanted.max_call_s or wanted.budget or timer.parting):
            timer.look(loop.time(), False, wanted)  # this starts the clock of the call
            configured.clear()
            await configured.wait()
            continue
        match timer.look(loop.time(), is_quiet(), wanted, awaits_tool()):
            case Due.PROMPT:
                prompt(wanted.idle_s)
            case Due.GOODBYE:
                goodbye(timer.words)
            case Due.END:
                raise CallOver(timer.reason)
        await asyncio.sleep(LOOK_SECONDS)
