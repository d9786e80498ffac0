"""What a driver must have seen, part by part: each check returns what is wrong, or nothing."""

from __future__ import annotations

from typing import Any

STORY = " ".join(f"This is sentence number {number} of a story." for number in range(1, 9))
END = "That is the end of the story."
"""What is answered first, and after the interruption and a call of a tool."""
CALL = {"bridge": "the Brooklyn Bridge"}
ROWS: list[list[str]] = []
"""A row of the table for each client that was tried."""


def turn(seen: dict[str, Any]) -> str:
    """A question is heard, and an answer comes in words and in sound, to its end."""
    if not (seen["user"] and "weather" in seen["user"][0].lower()):
        return f"the question was understood as {seen['user']}"
    answer = seen["answer"]
    if answer["text"].strip() != END or answer["status"] != "completed":
        return f"the answer was {answer}"
    return "" if answer["audio_ms"] > 1000 else f"the answer took {answer['audio_ms']} ms"


def interrupted(seen: dict[str, Any]) -> str:
    """Somebody speaks over the answer: it stops, and the next question is understood.

    A cut answer is a cancelled response, and an incomplete item: clients show the one or the other.
    """
    if seen["cut"]["status"] not in ("cancelled", "incomplete") or not is_part(seen["cut"]["text"]):
        return f"the first answer was {seen['cut']}"
    return "" if "brooklyn" in seen["user"][-1].lower() else f"the user said {seen['user']}"


def truncated(seen: dict[str, Any]) -> str:
    """The client says how much was played; the server's item holds those words, and no others."""
    if not 1000 < seen["truncated_ms"] < 8000:
        return f"{seen['truncated_ms']} ms were acknowledged"
    return "" if is_part(seen["held"]) else f"the item holds {seen['held']!r}"


def called(seen: dict[str, Any]) -> str:
    """The second question makes the client run a tool, once, and the answer waits for what that gave."""
    return "" if seen["called"] == [CALL] else f"these calls were made: {seen['called']}"


def is_part(text: str) -> bool:
    """Tell whether it is the beginning of the story, and not all of it."""
    return bool(text) and STORY.startswith(text.strip()) and len(text) < len(STORY)


PARTS = {"turn": turn, "interrupted": interrupted, "truncated": truncated, "tool": called}
