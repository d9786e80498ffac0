"""The default system prompt, and the date and the time in system prompts."""

from __future__ import annotations

from datetime import datetime

INSTRUCTIONS = (
    "You are a friendly voice assistant on a phone call. Your answers are short: one or two plain spoken "
    "sentences, without lists or symbols."
)
"""The default system prompt. It is the same for all calls, so the language model reads it once."""


def dated(instructions: str, now: datetime) -> str:
    """Return instructions with the date and the time in the places of ``{date}`` and ``{time}``.

    They are written as an English speaker reads them aloud: "Wednesday, March 4, 2026" and "3:20 PM". Other
    braces stay as they are.
    """
    date = f"{now:%A, %B} {now.day}, {now.year}"
    time = f"{now.hour % 12 or 12}:{now:%M} {'AM' if now.hour < 12 else 'PM'}"
    return instructions.replace("{date}", date).replace("{time}", time)
