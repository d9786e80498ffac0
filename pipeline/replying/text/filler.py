"""Words that fill a silence, such as "One moment.": they are heard, and in no history."""

from __future__ import annotations


class Filler(str):
    """A clause that the client hears while there is no answer yet. No transcript and no prompt has it."""

    __slots__ = ()
