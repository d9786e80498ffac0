"""A call of 20 minutes: a name, a number and a decision in the first, questions about them in the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from rejoinder.pipeline import Message
from rejoinder.pipeline.context.tokens import estimated

MINUTES = 20
"""Length of the call."""
EVERY_S = 10.0
"""Seconds between the starts of two turns of the caller."""
SPEECH_S = 2.0
"""Length of a turn of the caller, in seconds."""
FIRST_TURNS = [
    "hello my name is Adaeze Okafor",
    "my order number is 48213",
    "we will take the blue sofa instead of the green one",
]
"""What the caller tells in the first minute."""
LAST_QUESTIONS = {
    "what is my name": "Adaeze Okafor",
    "what is my order number": "48213",
    "which sofa did we choose": "blue sofa",
}
"""The last questions of the call, and what their answers must have."""
SMALL_TALK = [
    "is it raining in {name} today",
    "my neighbour {name} has {number} dogs and they bark",
    "do you know how far it is to the station",
    "the last delivery came at {number} past nine",
    "I was on holiday for {number} days with {name}",
    "what do you think about the colour of the wall",
    "we have {number} chairs already and a table",
    "can you tell me more about the legs of it",
    "my sister {name} says that wood is better",
    "how do I clean it when the children spill milk",
]
"""What the caller talks about in between. It has names and numbers, too, none of which matters."""
TALK_NAMES = (
    "Oslo",
    "Tom",
    "Ingrid",
    "Lisbon",
    "Marek",
    "Paula",
    "Quito",
    "Renate",
    "Samir",
    "Vienna",
    "Yusuf",
)
"""Names in ``SMALL_TALK``."""
SMALL_ANSWERS = [
    "That is a good question, and many people ask it when they look for furniture.",
    "I see. It has oak legs and a cover that you can take off and wash.",
    "Most of our customers say that it is comfortable, and that it lasts for years.",
]
"""What the agent says in between."""


def lines() -> list[str]:
    """Return the turns of the caller, in order: one each ``EVERY_S``."""
    between = int(MINUTES * 60 / EVERY_S) - len(FIRST_TURNS) - len(LAST_QUESTIONS)
    talk = [
        SMALL_TALK[turn % len(SMALL_TALK)].format(
            name=TALK_NAMES[turn * 7 % len(TALK_NAMES)], number=2 + turn * 5 % 29
        )
        for turn in range(between)
    ]
    return [*FIRST_TURNS, *talk, *LAST_QUESTIONS]


class PromptReader:
    """A language model that knows what its prompt says, and nothing else.

    It answers a question of ``LAST_QUESTIONS`` if the prompt has the answer. As a summariser it is as bad as
    can be: it says that there was a talk, and leaves out all of it.

    context: its context in tokens. summary_s: seconds that it takes for a summary.
    """

    def __init__(self, context: int, summary_s: float = 1.0) -> None:
        self.context_tokens = context
        self.prompts: list[list[Message]] = []
        self.summaries: list[list[Message]] = []
        self.open = 0
        self._summary_s = summary_s

    def tokens_in(self, text: str) -> int:
        """Return the number of tokens: one for three bytes."""
        return estimated(text)

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing, because there is no cache. Cancelling changes nothing."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Answer the last words from the prompt, after 80 ms. Closing the generator stops it."""
        self.open += 1
        try:
            self.prompts.append(list(messages))
            await asyncio.sleep(0.08)
            yield self._answer(messages)
        finally:
            self.open -= 1

    async def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Write a summary without any facts. Closing the generator stops it."""
        self.open += 1
        try:
            self.summaries.append(list(messages))
            await asyncio.sleep(self._summary_s)
            yield "The caller and the agent talked about furniture."
        finally:
            self.open -= 1

    def _answer(self, messages: Sequence[Message]) -> str:
        asked = messages[-1]["content"]
        fact = next((fact for question, fact in LAST_QUESTIONS.items() if asked.endswith(question)), None)
        if fact is None:
            return SMALL_ANSWERS[len(messages) % len(SMALL_ANSWERS)]
        known = any(fact in one["content"] for one in messages)
        return f"That is {fact}." if known else "I am sorry, I do not know that."


def prompt_tokens(messages: Sequence[Message]) -> int:
    """Return the tokens of a prompt, without those of its template."""
    return sum(estimated(one["content"]) for one in messages)


def shared(prompt: Sequence[Message], before: Sequence[Message]) -> int:
    """Return the tokens at the start of a prompt that it shares with the one before: what a cache keeps."""
    tokens = 0
    for one, other in zip(prompt, before, strict=False):
        if one != other:
            break
        tokens += estimated(one["content"])
    return tokens
