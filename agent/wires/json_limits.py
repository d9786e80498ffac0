"""Limits on JSON text, checked in about a millisecond before it is parsed."""

from __future__ import annotations

import re

MAX_DEPTH = 64
"""Most levels of nested objects and lists. JSON schemas are the deepest that clients send."""

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, complete or cut off. The pattern never backtracks, so its time is linear in the length."""
_NUMBER = re.compile(r"[0-9]{1000}")
"""A number with too many digits: Python parses and prints integers in quadratic time."""
_EVERY = 100
"""A first look at a text takes every 100th character, which is a hundredth of the work."""
_SAMPLED = re.compile(r"[0-9]{9}")
"""What such a first look sees of a number with too many digits."""
_SHORT = 8192
"""Numbers in a text of at most this many characters need no check: they parse fast enough."""
_BRACKET = re.compile(r"[][{}]")
_MEMBER = r'\s*+"{}"\s*+:\s*+"([^"\\]*+)"'
_FLAT = r'\s*+\{(?:\s*+"[^"\\]*+"\s*+:\s*+"[^"\\]*+"\s*+,)*?'


def excess(text: str, entries: int) -> str:
    """Return which limit a text exceeds, "" for none.

    entries: most members of objects and entries of lists, counted together over the whole text.
    """
    opened = text.count("[") + text.count("{")
    # Each value but the first follows a comma or an opening bracket.
    few = len(text) <= entries or opened + text.count(",") <= entries
    numbers = len(text) > _SHORT and _SAMPLED.search(text[::_EVERY])
    if few and not numbers and opened <= MAX_DEPTH:
        return ""
    too_many = f"the JSON has more than {entries} values"
    # Each value may have a name, and both may be strings. A quote that begins a string never follows "\\".
    if text.count('"') - text.count('\\"') > 4 * (entries + 1):
        return too_many
    outside = _STRING.sub("", text)  # brackets and commas inside strings do not count
    if outside.count("[") + outside.count("{") + outside.count(",") > entries:
        return too_many
    if numbers and _NUMBER.search(outside):
        return "the JSON has a number with more than 1000 digits"
    depth = deepest = 0
    for bracket in _BRACKET.findall(outside):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return f"the JSON is nested more than {MAX_DEPTH} deep" if deepest > MAX_DEPTH else ""


def early(text: str, name: str) -> str | None:
    """Return a string member of an object without parsing the object; only string members may come before it.

    Return None where it is not found.
    """
    found = re.match(_FLAT + _MEMBER.format(re.escape(name)), text)
    return found[1] if found else None
