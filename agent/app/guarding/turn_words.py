"""What a caller said in one turn, as ``on_turn`` gets it."""

from __future__ import annotations

from rejoinder.pipeline.guarding.injection import suspected


class TurnWords(str):
    """The words of one turn: a text that also says whether it looks like a prompt injection."""

    __slots__ = ()

    @property
    def injection(self) -> str:
        """The rule that finds a likely prompt injection in the words, "" where none does.

        The rules miss some and suspect some harmless words (docs/guides/guardrails.md has the figures).
        """
        return suspected(self)
