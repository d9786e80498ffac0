"""How much a text in JSON may hold: judged in about a millisecond, before it is parsed."""

from __future__ import annotations

import re

MAX_DEPTH = 64
"""Objects and lists inside of each other; the deepest that a client here has reason to send are schemas."""

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, whole or broken off. It gives nothing back, so that its time grows with the length only."""
_NUMBER = re.compile(r"[0-9]{1000}")
"""Python reads and writes numbers in a time that grows with the square of their digits."""
_EVERY = 100
_SAMPLED = re.compile(r"[0-9]{9}")
"""What is left of such a number where only every 100th character is looked at, for a hundredth of the work."""
_SHORT = 8192
"""Characters of a text whose numbers take no time worth speaking of."""
_BRACKET = re.compile(r"[][{}]")
_MEMBER = r'\s*+"{}"\s*+:\s*+"([^"\\]*+)"'
_FLAT = r'\s*+\{(?:\s*+"[^"\\]*+"\s*+:\s*+"[^"\\]*+"\s*+,)*?'


def excess(text: str, entries: int) -> str:
    """Return what a text has too much of to be parsed, "" where it has not.

    entries: the most members of objects and entries of lists, counted together over the whole text.
    """
    few = len(text) <= entries or _entries(text) <= entries
    numbers = len(text) > _SHORT and _SAMPLED.search(text[::_EVERY])
    if few and not numbers and _opened(text) <= MAX_DEPTH:
        return ""
    too_many = f"more than {entries} values, which are the most"
    # Each value may have a name, and both may be strings. The quote that begins one is never behind "\\".
    if text.count('"') - text.count('\\"') > 4 * (entries + 1):
        return too_many
    bare = _STRING.sub("", text)  # what is inside of strings costs nothing
    if _entries(bare) > entries:
        return too_many
    if numbers and _NUMBER.search(bare):
        return "a number of more than 1000 digits"
    depth = deepest = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return f"nested more than {MAX_DEPTH} deep" if deepest > MAX_DEPTH else ""


def early(text: str, name: str) -> str | None:
    """Return the text of a member of an object that is not parsed, if only short texts come before it."""
    found = re.match(_FLAT + _MEMBER.format(re.escape(name)), text)
    return found[1] if found else None


def _opened(text: str) -> int:
    return text.count("[") + text.count("{")


def _entries(text: str) -> int:
    """Return a bound: each value but the first stands behind a comma or what opens an object or a list."""
    return text.count(",") + _opened(text)
