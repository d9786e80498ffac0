"""Applies the rules of a guard to one reply, clause by clause."""

from __future__ import annotations

from rejoinder.pipeline.guarding.rules import Finding, Rules

LOOK_BACK = 200
"""Characters of the reply in front of a clause that the rules see: a phrase may span clauses."""
MAX_HELD = 320
"""Most characters that wait for the next clause: two of the longest clauses."""
JUDGED = 1_000
"""Last characters of a reply, up to the end of the clause, that the judges see."""


class Screening:
    """The state of the rules in one reply. joint: what stands between two clauses.

    A clause whose end may be the beginning of a blocked phrase or of a number waits for the next one, and
    passes together with it. The end of a sentence does not wait.
    """

    def __init__(self, rules: Rules, joint: str = " ") -> None:
        self._rules = rules
        self._joint = joint
        self._before = self._held = self._allowed = ""
        self._characters = 0

    @property
    def allowed(self) -> str:
        """The end of what the rules have allowed, for the judges."""
        return self._allowed

    def feed(self, clause: str) -> Finding:
        """Return what the rules say about the next clause. Its text is "" while it waits for the next."""
        text, self._held = self._held + clause, ""
        if len(text) < MAX_HELD and self._rules.may_go_on(self._before + text):
            self._held = text + self._joint
            return Finding("")
        return self._check(text)

    def flush(self) -> Finding:
        """Return what the rules say about a clause that waits, at the end of the reply."""
        text, self._held = self._held.removesuffix(self._joint), ""
        return self._check(text) if text else Finding("")

    def _check(self, text: str) -> Finding:
        self._characters += len(text)
        if 0 < self._rules.max_characters < self._characters:
            return Finding("", "length")
        finding = self._rules.check(self._before, text)
        self._before = (self._before + text + self._joint)[-LOOK_BACK:]
        if finding.text:
            self._allowed = (self._allowed + finding.text + self._joint)[-JUDGED:]
        return finding
