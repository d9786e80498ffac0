"""The default system prompt and examples, and the date and the time in system prompts."""

from __future__ import annotations

from datetime import datetime, timedelta

from rejoinder.pipeline.interfaces import Message

INSTRUCTIONS = (
    "You are a friendly voice assistant on a phone call. Your answers are short: one or two plain spoken "
    "sentences, without lists or symbols. If you cannot know something, such as what the caller did or owns, "
    "say that you do not know. Today is {date}, tomorrow is {tomorrow}, and it is {time}."
)
"""The default system prompt. What changes comes last, so that the language model reads the rest once."""


TALK = (
    ("Hello, who are you?", "Hello! I'm a voice assistant. How can I help you?"),
    ("How long is a week?", "A week has seven days."),
    ("And two weeks?", "Two weeks have fourteen days."),
    ("Who invented the telephone?", "The telephone was invented by Alexander Graham Bell."),
    ("Where is my wallet?", "I don't know where your wallet is."),
    ("I had a bad day.", "I'm sorry to hear that. What happened?"),
    ("How do I make tea?", "Boil some water, pour it over the tea, and wait four minutes."),
    (
        "Tell me a story.",
        "A little boat was lost in the fog. Then a lighthouse lit its lamp, and the boat found its way home.",
    ),
    ("What did I eat yesterday?", "I'm sorry, I don't know what you ate yesterday."),
)
"""Questions and answers of what is known and what cannot be known, and answers without lists."""
EXAMPLES = tuple(
    Message(role=role, content=text)
    for turn in TALK
    for role, text in zip(("user", "assistant"), turn, strict=True)
)
"""An invented start of the call for ``small`` and ``medium``, which shows them how short an answer is.

With more that cannot be known, the small model no longer knows who wrote Hamlet (docs/lab/latency-models.md).
"""


def dated(instructions: str, now: datetime) -> str:
    """Return instructions with the values of ``{date}``, ``{tomorrow}`` and ``{time}``.

    They are written as an English speaker reads them aloud: "Wednesday, March 4, 2026", "Thursday" and "3:20
    PM". Other braces stay as they are.
    """
    date = f"{now:%A, %B} {now.day}, {now.year}"
    time = f"{now.hour % 12 or 12}:{now:%M} {'AM' if now.hour < 12 else 'PM'}"
    tomorrow = f"{now + timedelta(days=1):%A}"
    return instructions.replace("{date}", date).replace("{tomorrow}", tomorrow).replace("{time}", time)
