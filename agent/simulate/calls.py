"""Calls for mass simulation: a script for each kind of behaviour, and random callers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.line import Line
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Options

FORECAST = "It is sunny today. Take a hat, if you go out."
"""The agent's answer to a question about the weather."""
TABLE_QUESTION = "For how many people? And at what time would that be?"
"""The agent's answer to a caller who wants a table."""
ANSWERS = (
    FORECAST,
    TABLE_QUESTION,
    "Fine.",
    "Yes, I can do that for you.",
    "It costs nine dollars and eighty cents.",
)
"""The agent's answers, of which each call gets some."""
QUESTIONS = (
    "what is the weather",
    "I want a table for two.",
    "how much is that?",
    "can you call me tomorrow",
    "my number is four four one",
    "yes",
)
"""What random callers say."""
MURMURS = ("mm-hm", "right", "okay", "yeah, I see")
"""Backchannels of random callers."""
BAD_LINE = Line(delay=0.06, jitter=0.12, seed=1)
"""A late and uneven line."""


def agent(*answers: str, first: float = 0.08) -> ScriptedLlm:
    """Return a language model that gives these answers in turn; ``first``: seconds to its first token."""
    return ScriptedLlm(answers or (FORECAST, "Fine."), first=first)


SCRIPTS: dict[str, Callable[[], Caller]] = {
    "asks": lambda: Caller(agent()).says("what is the weather").hears_out(),
    "pauses": lambda: Caller(agent()).says("what is the weather").pauses(0.5).says("in Paris?").hears_out(),
    "hesitates": lambda: Caller(agent()).says("I want").hesitates(0.6).says("a table for two").hears_out(),
    "coughs": lambda: Caller(agent()).says("what is the weather").hears(0.8).coughs().hears_out(),
    "laughs": lambda: Caller(agent()).says("what is the weather").hears(0.8).coughs(1.2).hears_out(),
    "backchannels": lambda: Caller(agent()).says("what is it?").hears(0.8).backchannels("mm-hm").hears_out(),
    "interrupts": lambda: Caller(agent()).says("how is it?").interrupts("no, in London").hears_out(),
    "goes on": lambda: Caller(agent(TABLE_QUESTION)).says("a table").hears(0.1).says("for two").hears_out(),
    "types": lambda: Caller(agent()).says("how is it?").hears(0.5).types("in London").hears_out(),
    "murmurs": lambda: Caller(agent()).waits(0.2).coughs(0.2).waits(2.5).says("hello").hears_out(),
    "waits": lambda: Caller(agent(first=1.5)).says("how is it?").waits(0.8).says("hello?").hears_out(),
    "holds": lambda: (
        Caller(agent(), Options(instructions="", holds_audio=True))
        .says("how is it?")
        .hears(0.6)
        .coughs(0.4)
        .hears(0.3)
        .interrupts("stop it", after=0.2)
        .hears_out()
    ),
    "bad line": lambda: (
        Caller(agent(), line=BAD_LINE).says("how is it?").interrupts("no, in London").hears_out()
    ),
}
"""The scripts by name. Each function returns a new caller."""


def random_caller(seed: int) -> Caller:
    """Return a caller with one to three random turns. The same seed gives the same caller."""
    chance = random.Random(seed)
    answers = chance.sample(ANSWERS, len(ANSWERS))
    options = replace(Options(instructions=""), holds_audio=chance.random() < 0.5)
    line = (
        Line(chance.uniform(0.0, 0.1), chance.uniform(0.0, 0.15), seed) if chance.random() < 0.3 else Line()
    )
    caller = Caller(agent(*answers, first=chance.choice((0.08, 0.2, 0.9))), options, line=line)
    caller.waits(chance.uniform(0.0, 0.5))
    for _ in range(chance.randint(1, 3)):
        caller.says(chance.choice(QUESTIONS))
        if chance.random() < 0.4:
            caller.pauses(chance.uniform(0.1, 1.5)).says(chance.choice(QUESTIONS))
        if chance.random() < 0.2:
            caller.hesitates(chance.uniform(0.2, 1.0)).says(chance.choice(QUESTIONS))
        match chance.choice(("hears out", "interrupts", "backchannels", "coughs", "types")):
            case "interrupts":
                caller.interrupts(chance.choice(QUESTIONS), after=chance.uniform(0.02, 0.25))
            case "backchannels":
                caller.hears(chance.uniform(0.02, 0.25)).backchannels(chance.choice(MURMURS))
            case "coughs":
                caller.hears(chance.uniform(0.02, 0.25)).coughs(chance.uniform(0.05, 1.5))
            case "types":
                caller.hears(chance.uniform(0.02, 0.25)).types(chance.choice(QUESTIONS))
        caller.waits(1.5)
    return caller
