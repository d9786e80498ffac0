"""Ends a call whose agent cannot answer, after some replies that failed."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.agent.app.call import Call


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A hook for ``Agent.on_failure``: it hangs up once enough replies in a row have failed.

    after: how many. words: said before.
    """

    after: int
    words: str

    async def __call__(self, call: Call, failures: int) -> None:
        """Hang up if it is time, once the words are heard. Cancelling before keeps the call."""
        if failures >= self.after:
            await call.hang_up(say=self.words, reason=f"{failures} replies in a row have failed")
