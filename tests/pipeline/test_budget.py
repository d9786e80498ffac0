"""Budgets of calls, keys and days: a warning, a smaller model, and a polite end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.routing.choosing import Facts, choose
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import CallOver, Message, ReplyDone, ReplyRequest, Session, day_tally
from rejoinder.pipeline.budget import BudgetLimit, BudgetPlan, Budgets, CallBudget
from rejoinder.pipeline.day_tally import DayTally
from rejoinder.pipeline.events import BudgetReached

BYE = "Our time is up. Goodbye."


class Counting(ScriptedLlm):
    """Each of its prompts has 100 tokens."""

    def count(self, messages: Sequence[Message]) -> int:
        return 100


def talk(budget: CallBudget, turns: int = 4, **more: Any) -> Talk:
    more = {"llm": Counting(["Yes."]), **more}
    held = Talk(*["what is the weather"] * turns, budget=budget, **more)
    for turn in range(turns):
        held.says(1.2, at=0.5 + 5.0 * turn)
    return held


def reached(held: Talk) -> list[tuple[str, bool]]:
    return [(event.scope, event.over) for event in held.of(BudgetReached)]


def heard(held: Talk) -> list[str]:
    return [event.heard for event in held.of(ReplyDone)]


@pytest.mark.parametrize("words", [BYE, ""])
def test_a_call_is_warned_and_ends_politely(words: str) -> None:
    plan = BudgetPlan(call=BudgetLimit(tokens=250), words=words)
    held = talk(Budgets(plan).of(""), speculate=False)
    with pytest.raises(CallOver, match="the budget of the call is spent"):
        held.run(until=20.0)
    assert reached(held) == [("call", False), ("call", True)]
    assert heard(held) == ["Yes.", "Yes.", "Yes.", *filter(None, [words])]


def test_the_last_words_are_heard_whatever_the_caller_says() -> None:
    held = talk(Budgets(BudgetPlan(call=BudgetLimit(tokens=50), words=BYE)).of(""), turns=1)
    held.says(0.6, at=3.2)
    with pytest.raises(CallOver):
        held.run(until=20.0)
    assert heard(held)[:2] == ["Yes.", BYE]


def test_a_call_whose_day_is_spent_says_so_and_ends() -> None:
    budgets = Budgets(BudgetPlan(day=BudgetLimit(cost=1.0), words=BYE))
    budgets.of("one").spend(10, cost=2.0)
    held = talk(budgets.of("two"), greeting="Hello.")
    with pytest.raises(CallOver, match="the budget of the day is spent"):
        held.run(until=20.0)
    assert set(heard(held)[1:]) == {BYE} and not held.llm.prompts


@pytest.mark.parametrize("words", [BYE, ""])
def test_a_caller_who_never_stops_does_not_keep_a_spent_call(words: str) -> None:
    budgets = Budgets(BudgetPlan(day=BudgetLimit(cost=1.0), words=words))
    budgets.of("one").spend(10, cost=2.0)
    held = talk(budgets.of("two"), turns=0)
    held.says(200.0, at=0.05)
    with pytest.raises(CallOver, match="the budget of the day is spent"):
        held.run(until=120.0)
    assert not held.llm.prompts and all(at < 75.0 for at, _ in held.log)


def test_without_words_a_spent_budget_refuses_each_request() -> None:
    budgets = Budgets(BudgetPlan(day=BudgetLimit(cost=1.0), words=""))
    held = talk(budgets.of("two"), turns=0)

    def ask(session: Session) -> None:
        budgets.of("one").spend(10, cost=2.0)
        session.respond(ReplyRequest(instructions="x"))
        session.respond(ReplyRequest(remembered=False, instructions="x"))

    held.does(ask, at=0.3)
    with pytest.raises(CallOver):
        held.run(until=20.0)
    assert {(done.status, done.code) for done in held.of(ReplyDone)} == {("failed", "insufficient_quota")}
    assert not held.llm.prompts


def test_a_call_that_has_said_goodbye_ends_at_midnight_too() -> None:
    today = [1]
    budget = Budgets(BudgetPlan(key=BudgetLimit(tokens=5)), DayTally(lambda: today[0])).of("one")
    budget.spend(9)
    budget.parted = True
    today[0] = 2
    assert budget.over and not budget.spent


def test_keys_and_days_are_counted_apart() -> None:
    today = [date(2026, 11, 28)]
    plan = BudgetPlan(key=BudgetLimit(tokens=100), day=BudgetLimit(tokens=1_000))
    budgets = Budgets(plan, DayTally(lambda: today[0]))
    first, second, other = budgets.of("one"), budgets.of("one"), budgets.of("two")
    first.spend(60)
    assert (first.share, second.share, other.share) == (0.6, 0.6, 0.06)
    second.spend(30)
    assert [(one.scope, one.over) for one in second.news()] == [("key", False)]
    assert second.news() == [] and [one.scope for one in first.news()] == ["key"]
    other.spend(910)
    assert (first.spent, other.spent) == ("day", "key") and first.over
    today[0] = date(2026, 11, 29)
    assert (first.share, first.over, first.spent) == (0.0, False, "")


def test_addresses_are_counted_apart_and_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two names for each of a key, all calls and an address.
    monkeypatch.setattr(day_tally, "MOST_NAMES", 6)
    budgets = Budgets(BudgetPlan(address=BudgetLimit(tokens=100)))
    one, other, none = budgets.of("k", "192.0.2.1"), budgets.of("k", "192.0.2.2"), budgets.of("k")
    one.spend(100)
    other.spend(100)
    assert (one.spent, other.spent, none.spent) == ("address", "", "")
    assert [(each.scope, each.over) for each in one.news()] == [("address", True)]
    assert budgets.of("new key").scopes == {"key": "key new key", "day": "all calls"}


def test_cost_and_tokens_count_what_is_closer_to_its_end() -> None:
    budget = Budgets(BudgetPlan(call=BudgetLimit(tokens=100, cost=0.5))).of("")
    budget.spend(10, cost=0.3)
    assert budget.share == 0.6
    budget.spend(60)
    assert budget.share == 0.7


def test_a_model_that_does_not_count_is_estimated() -> None:
    class Plain(ScriptedLlm):
        count = None  # type: ignore[assignment]

    budget = Budgets(BudgetPlan(call=BudgetLimit(tokens=10_000))).of("")
    talk(budget, 1, llm=Plain(["Yes."])).run(until=5.0)
    assert 10 < budget.used.tokens < 60


def test_given_words_cost_nothing() -> None:
    budget = Budgets(BudgetPlan(call=BudgetLimit(tokens=10))).of("")
    talk(budget, 0, greeting="Hello.").run(until=4.0)
    assert budget.used.tokens == 0


def test_a_rule_chooses_a_smaller_model_when_a_budget_comes_to_its_end() -> None:
    rules = [(1, RouteSettings(model="small", budget_above=0.8))]
    assert choose(Facts(budget=0.8), rules).model == ""
    assert choose(Facts(budget=0.9), rules).model == "small"
    assert choose(Facts(budget=0.9), rules).reason == "rule 1: budget_above 0.8"
