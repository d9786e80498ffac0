"""Rules in conversations in virtual time: who is asked first, who takes over, and who is warmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.failover import Failover, ToolFailover
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.router import Router
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedSttStream
from rejoinder.pipeline import Message, ReplyDone, Tools, Transcript, TurnTraced

EASY = "how are you"
HARD = "when does the train to boston leave tomorrow"
NIGHT = datetime(2026, 11, 23, 23, 30)
TOOLS = Tools([{"type": "function", "function": {"name": "book"}}])
NO_RULE = {"reason": "no rule matches"}


class Deaf:
    """A model that cannot call tools."""

    def __init__(self) -> None:
        self.open = 0
        self.warmed: list[Sequence[Message]] = []

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "I have no tools. "

    async def warm(self, messages: Sequence[Message]) -> None:
        self.warmed.append(messages)


class Warmed(ScriptedLlm):
    """Records the prompts that it is warmed with."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.warmed: list[Sequence[Message]] = []

    async def warm(self, messages: Sequence[Message]) -> None:
        self.warmed.append(messages)


class German(ScriptedStt):
    """Says its language, as Whisper does."""

    language = "de"


class Growing(ScriptedStt):
    """Knows only the words that fit into the audio, in final transcripts, too."""

    def stream(self) -> ScriptedSttStream:
        return GrowingStream(self)


class GrowingStream(ScriptedSttStream):
    async def transcribe(self, is_final: bool) -> Transcript:
        return replace(await super().transcribe(False), is_final=is_final)


def rules(*tables: dict[str, Any]) -> list[RouteSettings]:
    return [RouteSettings.model_validate({"model": "little", **table}) for table in tables]


def routed(given: list[RouteSettings], budget: float = 0.0, spent: float = 0.0, **models: Any) -> Any:
    """Return the models of a list, with rules."""
    candidates = {name: Candidate(name, llm) for name, llm in models.items()}
    spending = DaySpending()
    spending.add(spent)
    router = Router(candidates, given, budget, spending, lambda: NIGHT)
    several: Any = ToolFailover(list(candidates.values()), router=router)
    several.open = 0  # the models' own count is checked
    return several


def two(given: list[RouteSettings], **more: Any) -> Any:
    return routed(given, **more, big=ScriptedLlm(["I am big."]), little=ScriptedLlm(["I am little."]))


def talk_with(several: Failover, said: str = HARD, **options: Any) -> Talk:
    stt = German([said])
    talk = Talk(llm=several, stt=stt, **{"speculate": False, **options})
    talk.says(1.2, at=0.5)
    return talk.run(until=8.0)


def heard(talk: Talk) -> str:
    (done,) = talk.of(ReplyDone)
    return done.heard


@pytest.mark.parametrize(
    ("said", "rule", "model", "route"),
    [
        (EASY, {"difficulty": "easy"}, "little", "rule 1: difficulty easy"),
        (HARD, {"difficulty": "easy"}, "big", ""),
        (EASY, {"max_words": 3, "tools": False}, "little", "rule 1: max_words 3, tools false"),
        (HARD, {"max_words": 3}, "big", ""),
        ("请问明天去波士顿的火车几点出发", {"max_words": 3}, "big", ""),
        (HARD, {"hours": "22:00-06:00"}, "little", "rule 1: hours 22:00-06:00"),
        (HARD, {"hours": "06:00-22:00"}, "big", ""),
        (HARD, {"languages": ["de"]}, "little", "rule 1: languages de"),
        (HARD, {"languages": ["en"]}, "big", ""),
        (HARD, {"keys": ["abcdef01"]}, "little", "rule 1: keys abcdef01"),
        (HARD, {"keys": ["bcdef012"]}, "big", ""),
    ],
)
def test_a_rule_chooses_and_the_trace_says_who_and_why(
    said: str, rule: dict[str, Any], model: str, route: str
) -> None:
    talk = talk_with(two(rules(rule)), said, key="abcdef01" * 8)
    assert heard(talk) == f"I am {model}."
    trace = talk.of(TurnTraced)[-1].trace
    assert trace.route == ({"model": model, "reason": route} if route else NO_RULE)
    assert trace.models == [model] and trace.described()["route"] == trace.route


def test_without_rules_there_is_no_route_in_the_trace() -> None:
    several: Any = Failover([Candidate("big", ScriptedLlm(["I am big."]))])
    several.open = 0
    assert "route" not in talk_with(several).of(TurnTraced)[-1].trace.described()


def test_a_rule_for_a_model_that_is_not_in_the_list_does_not_hold() -> None:
    """An agent may use another list for some of its calls."""
    several = routed(rules({"max_words": 50}), big=ScriptedLlm(["I am big."]))
    assert heard(talk_with(several)) == "I am big."


def test_a_chosen_model_that_fails_is_replaced_in_the_order_of_the_list() -> None:
    little = ScriptedLlm(["I am little."], fail_after=0)
    models = {"big": ScriptedLlm(["I am big."]), "other": ScriptedLlm(["I am another."]), "little": little}
    talk = talk_with(routed(rules({"max_words": 20}), **models))
    assert heard(talk) == "I am big." and len(little.prompts) == 1
    trace = talk.of(TurnTraced)[-1].trace
    assert (trace.route["model"], trace.models, trace.counts["failovers"]) == ("little", ["big"], 1)


def test_a_chosen_model_whose_breaker_is_open_is_not_asked() -> None:
    several = two(rules({"max_words": 20}))
    several.candidates[1].breaker.open()
    assert heard(talk_with(several)) == "I am big."


def test_a_model_without_tools_is_not_chosen_for_a_reply_with_tools() -> None:
    def models() -> Any:
        return routed(rules({"max_words": 20}), big=ScriptedLlm(["I am big."]), little=Deaf())

    talk = talk_with(models(), tools=TOOLS)
    assert heard(talk) == "I am big." and talk.of(TurnTraced)[-1].trace.route == NO_RULE
    assert heard(talk_with(models())) == "I have no tools."


@pytest.mark.parametrize(("spent", "model"), [(9.5, "little"), (2.0, "big")])
def test_the_budget_of_the_day_chooses_by_what_the_models_have_spent(spent: float, model: str) -> None:
    several = two(rules({"cost_left_below": 1.0}), budget=10.0, spent=spent)
    assert heard(talk_with(several)) == f"I am {model}."


@pytest.mark.parametrize(
    ("given", "deaf", "warmed"),
    [
        ([{"max_words": 5}], False, "little"),
        ([{"max_words": 5, "tools": False}], False, "big"),
        ([{"max_words": 5}], True, "big"),
        ([{"max_words": 5, "languages": ["en"]}], False, "big"),
        ([{"max_words": 5, "keys": ["abcdef01"]}], False, "big"),
        ([{"min_words": 50, "tools": True}, {"max_words": 5}], False, "little"),
    ],
)
def test_the_first_is_warmed_where_a_rule_needs_what_is_not_known_yet(
    given: list[dict[str, Any]], deaf: bool, warmed: str
) -> None:
    models: dict[str, Any] = {"big": Warmed(["Big."]), "little": Deaf() if deaf else Warmed(["Little."])}
    several = routed(rules(*given), **models)
    asyncio.run(several.warm([Message(role="user", content=EASY)]))
    assert [name for name, model in models.items() if model.warmed] == [warmed]


def test_a_guess_is_routed_by_its_own_words_and_dropped_with_them() -> None:
    big, little = ScriptedLlm(["I am big."]), ScriptedLlm(["I am little."])
    several = routed(rules({"max_words": 4}), big=big, little=little)
    talk = Talk(llm=several, stt=Growing(["how are you doing on this very fine day"]))
    talk.says(1.0, at=0.5)
    talk.says(1.5, at=1.7)
    talk.run(until=10.0)
    assert little.prompts and all(len(prompt[-1]["content"].split()) <= 4 for prompt in little.prompts)
    assert little.open == 0 and heard(talk) == "I am big."
    assert talk.of(TurnTraced)[-1].trace.route == NO_RULE
