"""The bench of rules: what each way costs, and how many right answers it keeps."""

from __future__ import annotations

import pytest

from rejoinder.agent.bench.answers.ask import Asked
from rejoinder.agent.bench.answers.questions import Half, Question
from rejoinder.agent.bench.routing.compare import SMALL, JudgedAnswer, routed_to_small, router_ms, ways
from rejoinder.models.llm.routing.settings import RouteSettings

EASY, HARD = "How are you?", "Why is the sky blue?"
RULES = [RouteSettings.model_validate({"model": SMALL, "difficulty": "easy"})]


def answered(words: str, right: bool, cost: float, first_s: float) -> JudgedAnswer:
    question = Question("everyday", Half.TUNE, ("Hello.", words))
    return JudgedAnswer(Asked(question, "Yes.", first_s, 2 * first_s, 3), right, cost)


def test_the_last_turn_of_a_question_is_routed() -> None:
    easy, hard = (answered(words, True, 0.0, 0.0).asked.question for words in (EASY, HARD))
    assert routed_to_small(easy, RULES) and not routed_to_small(hard, RULES)


def test_rules_take_the_answers_of_the_model_that_they_choose() -> None:
    big = [answered(EASY, True, 100.0, 0.4), answered(HARD, True, 300.0, 0.6)]
    small = [answered(EASY, True, 10.0, 0.1), answered(HARD, False, 30.0, 0.2)]
    always, never, routed = ways(big, small, RULES)
    assert (always.right, always.cost, always.by_small) == (2, 1.0, 0)
    assert (never.right, never.cost, never.kept, never.by_small) == (1, 0.1, 0.5, 2)
    assert (routed.right, routed.kept, routed.by_small) == (2, 1.0, 1)
    assert routed.cost == pytest.approx(310.0 / 400.0)
    assert routed.first.p50 == pytest.approx(350.0) and routed.whole.p50 == pytest.approx(700.0)


def test_a_decision_is_timed() -> None:
    took = router_ms([answered(HARD, True, 0.0, 0.0).asked.question], RULES, times=5)
    assert took.count == 5 and took.p95 is not None and took.p95 >= 0.0
