"""Turns pydantic's validation errors into sentences about a client's message."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

KIND_SENTENCES = {
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "union_tag_invalid": "{tag} is none of {expected_tags}",
    "literal_error": "has to be {expected}",
    "extra_forbidden": "there is no such field",
    "greater_than_equal": "has to be {ge} or more",
    "greater_than": "has to be more than {gt}",
    "less_than_equal": "has to be {le} or less",
    "less_than": "has to be less than {lt}",
    "string_too_short": "has too few characters: {min_length} is the least",
    "string_too_long": "has too many characters: {max_length} is the most",
    "too_short": "has too few entries: {min_length} is the least",
    "too_long": "has too many entries: {max_length} is the most",
    "string_pattern_mismatch": "has to fit {pattern}",
    "value_error": "{error}",
    "json_invalid": "not JSON: {error}",
    "string_unicode": "has half a character",
    "recursion_loop": "is too deep",
}
"""The sentence for each kind of pydantic error; the placeholders are pydantic's context."""
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "str": "a string",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
}
"""The expected type, by the prefix of pydantic's error kind."""
MOST_ERRORS = 50
"""Most errors that are read; a field with several allowed shapes produces several."""
UNREAD = {
    "input_image": "images are",
    "image_url": "images are",
    "image": "images are",
    "input_file": "files are",
    "file": "files are",
    "input_audio": "audio is",
}
"""Types of content that clients may send and that no language model here can read."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """One mistake.

    place: path of the field, outermost part first. kind: pydantic's name for the error. reason: the sentence
    without its subject. unread: whether it is content that cannot be read here, such as an image.
    """

    place: tuple[str, ...]
    kind: str
    reason: str
    unread: bool = False

    def sentence(self, param: str | None) -> str:
        """Return the sentence about the field ``param``, or about the whole message if ``param`` is empty."""
        if param or self.kind in ("json_invalid", "value_error"):
            return f"{param}: {self.reason}" if param else self.reason
        return f"the message {self.reason}"


def complaint(error: ValidationError, shapes: Container[str], skipped: int = 0) -> Complaint:
    """Return the first mistake.

    shapes: parts of pydantic's path that are not fields. skipped: number of leading parts of the path to
    drop. If a field may have several shapes, return the mistake in the best-fitting shape; if several fit
    equally well, join their reasons.
    """
    found = complaints(error, shapes, skipped)
    first = found[0].place
    deepest = max((one for one in found if one.place[: len(first)] == first), key=lambda one: len(one.place))
    reasons = dict.fromkeys(one.reason for one in found if one.place == deepest.place)
    return replace(deepest, reason=", or ".join(reasons))


def complaints(error: ValidationError, shapes: Container[str], skipped: int = 0) -> list[Complaint]:
    """Return up to ``MOST_ERRORS`` mistakes, in pydantic's order. The arguments are those of complaint()."""
    return [
        _complaint(dict(one), shapes, skipped) for one in islice(error.errors(include_url=False), MOST_ERRORS)
    ]


def _complaint(detail: dict[str, Any], shapes: Container[str], skipped: int) -> Complaint:
    kind, about = detail["type"], detail.get("ctx", {})
    named = [str(part) for part in detail["loc"][skipped:]]
    place = [part for part in named if part not in shapes and not part.startswith("literal[")]
    if kind.startswith("union_tag"):
        place.append(about["discriminator"].strip("'"))
    given = about.get("tag") if kind == "union_tag_invalid" else detail["input"]
    if kind in ("literal_error", "union_tag_invalid") and place[-1:] == ["type"] and "content" in place:
        if isinstance(given, str) and given in UNREAD:
            return Complaint(tuple(place), kind, f"{UNREAD[given]} not understood here, only text", True)
    if kind == "union_tag_invalid":
        about = {**about, "tag": repr(str(about["tag"])[:40])}
    if kind in KIND_SENTENCES:
        return Complaint(tuple(place), kind, KIND_SENTENCES[kind].format(**about))
    wanted = next((name for begin, name in TYPES.items() if kind.startswith(begin)), None)
    reason = f"has to be {wanted}" if wanted else detail["msg"].replace("Input should", "has to", 1)
    return Complaint(tuple(place), kind, reason)
