"""Decides the first words of an answer: of a small model, or a fixed phrase, while a large one works."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rejoinder.models.llm.failover.candidate import Candidate, Request
from rejoinder.pipeline.interfaces import Llm, Message
from rejoinder.pipeline.words import normalise

log = logging.getLogger(__name__)

OPENING_WORDS = 9
"""Most words of an opening: about two seconds of speech."""
LEAST_OPENING_WORDS = 2
"""Fewest words of an opening: one alone sounds cut off."""
OPENING_TOKENS = 24
"""Most pieces that are read from the small model."""
ASKS_OPENING = (
    "You are the first voice of an assistant on a telephone. You never answer. You only say the first words, "
    "before a colleague answers: two to eight words that show that you heard the question."
)
"""The instructions of the small model."""
OPENING_EXAMPLES = (
    ("How long is the flight to Boston?", "Sure, let me look at that,"),
    ("I think my card was stolen.", "Okay, let me check that for you,"),
    ("Why is my bill so high this month?", "Okay, let me see,"),
)
"""Examples for the small model."""
OPENED = (
    "(The words above are already spoken, by you. Go on with the very next word, so that both are one "
    "sentence in the same language and tone. Do not greet again, and repeat nothing. You may call a tool.)"
)
"""Asks a model without assistant prefill for what follows the opening."""
OPENING_VOCABULARY = frozenset(
    """sure okay ok alright right well so hmm hm oh ah of course good great interesting question thanks
    thank for asking let me let's us i i'll i'm i am will just going to look looking at check checking
    see find think have a take out that this it into up now one moment second minute please hold on give
    bit quick quickly about the you your""".split()
)
"""The only words that are taken from a small model. The one that this was tried with began to answer,
wrongly, and offered its condolences for a forgotten password (docs/lab/routing.md)."""
_END = re.compile(r"[.!?…:;\n—]|,\s|,$")


@dataclass(frozen=True, slots=True)
class Openings:
    """What is said while a model is late.

    phrases: fixed first words. model: a small one that writes them, None for phrases only. after_s: seconds
    that the answer may take before an opening is said.
    """

    phrases: Sequence[str] = ()
    model: Candidate | None = None
    after_s: float = 0.3

    def fit(self, request: Request) -> bool:
        """Return whether a late answer gets an opening: a spoken one to the caller's words.

        The result of a tool is not among these, and neither is a cue, which stands in parentheses. A request
        that may be sent only once has no opening, because what follows one is a second request.
        """
        last = request.messages[-1:]
        to_caller = bool(last) and last[0]["role"] == "user" and not last[0]["content"].startswith("(")
        return request.spoken and to_caller and request.hedges and not request.given

    async def choose(self, request: Request) -> tuple[str, str]:
        """Return the first words, "" for none, and the name of the model that wrote them, "" for a phrase.

        Cancelling closes the request to the model.
        """
        asked = request.messages[-1]["content"]
        if self.model and (said := await ask_opening(self.model.llm, asked)):
            return said, self.model.name
        return phrase(self.phrases, request.messages), ""


def phrase(openings: Sequence[str], messages: Sequence[Message]) -> str:
    """Return the opening for this turn: they take turns within a call. "" without openings."""
    turn = sum(message["role"] == "user" for message in messages)
    return fit_to_go_on(openings[(turn - 1) % len(openings)]) if openings else ""


def accepted(text: str) -> str:
    """Return the opening in what a small model wrote, "" if that may be an answer or cannot go on.

    The first clause counts, or the first two where the first has one word. It must be short, ask nothing, and
    have no other words than ``OPENING_VOCABULARY``, which is English.
    """
    words: list[str] = []
    for word in text.split():
        words.append(word)
        if _END.search(word) and len(words) >= LEAST_OPENING_WORDS:
            break
    opening = " ".join(words)
    if not LEAST_OPENING_WORDS <= len(words) <= OPENING_WORDS or not _END.search(words[-1]):
        return ""
    unfit = set(normalise(opening).split()) - OPENING_VOCABULARY or re.search(r"[?<>*#{}\[\]]", opening)
    return "" if unfit else fit_to_go_on(opening)


def fit_to_go_on(opening: str) -> str:
    """Return an opening that ends in a comma and a blank, so that a sentence can go on behind it.

    One that ends with a full stop or an exclamation mark stays a sentence of its own.
    """
    opening = " ".join(opening.split())
    if not opening:
        return ""
    return f"{opening} " if opening[-1] in ",.!…" else f"{opening.rstrip(';:—-')}, "


async def ask_opening(llm: Llm, asked: str) -> str:
    """Return the first words that a small model writes for the caller's last words, "" if none fit.

    It sees those only, so that its prompt is short. A model that fails writes nothing. Cancelling stops it.
    """
    text, pieces = "", 0
    try:
        async with aclosing(llm.reply(opening_prompt(asked))) as stream:
            async for piece in stream:
                text, pieces = text + piece, pieces + 1
                if pieces >= OPENING_TOKENS or (_END.search(text.rstrip()) and accepted(text)):
                    break
    except Exception as error:  # whatever it is: the answer comes without an opening
        log.debug("no opening: %r", error)
        return ""
    return accepted(text)


def opening_prompt(asked: str) -> list[Message]:
    """Return the prompt of the small model; all of it but the last message stays the same."""
    shown = [
        message
        for question, opening in OPENING_EXAMPLES
        for message in (Message(role="user", content=question), Message(role="assistant", content=opening))
    ]
    return [Message(role="system", content=ASKS_OPENING), *shown, Message(role="user", content=asked[-400:])]
