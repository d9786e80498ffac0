"""When a model is asked, and how long it is waited for: tables without a loop."""

from __future__ import annotations

import pytest

from rejoinder.models.llm.failover.breaker import (
    BREAKER_CALLS,
    BREAKER_SECONDS,
    FIRST_PROBE_SECONDS,
    LEAST_BAD,
    LONGEST_PROBE_SECONDS,
    Breaker,
)
from rejoinder.models.llm.failover.continuation import GO_ON, continued, is_whole
from rejoinder.models.llm.failover.deadlines import (
    CLAUSE_FACTOR,
    LAST_DEADLINE,
    LEAST_MEASURED,
    LONGEST_DEADLINE,
    MEASURED_CALLS,
    SHORTEST_CLAUSE_DEADLINE,
    SHORTEST_DEADLINE,
    START_CLAUSE_DEADLINE,
    START_DEADLINE,
    Waits,
    first_clause_deadline,
    first_word_deadline,
)
from rejoinder.models.llm.failover.hedge_budget import HedgeBudget
from rejoinder.models.llm.spec_list import listed
from rejoinder.pipeline.interfaces import Message

SMALL = "ort:qwen2.5-coder-0.5b-instruct"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("It leaves at nine. ", True),
        ("Really?!", True),
        ("„Ja.“", True),
        ("Good luck 🙂", True),
        ("今日は晴れです", True),
        ("รถไฟออกแล้ว", True),
        ("It leaves at ", False),
        ("It leaves at nine, ", False),
        ("It costs 5", False),
    ],
)
def test_text_that_may_end_here(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_second_requests_stay_a_share_of_all() -> None:
    budget = HedgeBudget(0.2)
    assert [budget.spend() for _ in range(4)] == [True, True, True, False], "some may follow each other"
    sent = 0
    for _ in range(1000):
        budget.asked()
        sent += budget.spend()
    assert sent == pytest.approx(200, abs=1)
    none = HedgeBudget(0.0)
    none.asked()
    assert not none.spend()


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        ("xxx", True),
        ("xx", False),
        ("x.x.x", True),
        ("...xxx", True),
        ("....xxx", False),
        ("xx" + "." * BREAKER_CALLS + "x", False),
        ("." * 100 + "xxxxx", True),
    ],
)
def test_the_share_of_bad_requests_opens_a_breaker(outcomes: str, opens: bool) -> None:
    breaker = Breaker()
    for now, outcome in enumerate(outcomes):
        if outcome == ".":
            breaker.succeeded(now)
        else:
            assert breaker.failed(now) is (opens and now == len(outcomes) - 1)
    assert breaker.closed is not opens


def test_old_requests_do_not_count() -> None:
    breaker = Breaker()
    for _ in range(LEAST_BAD - 1):
        breaker.failed(0.0)
    assert not breaker.failed(BREAKER_SECONDS) and breaker.closed
    breaker.failed(BREAKER_SECONDS + 1)
    assert breaker.failed(BREAKER_SECONDS + 2)


def test_only_a_probe_closes_a_breaker_and_probes_become_rarer() -> None:
    breaker = Breaker()
    assert breaker.probe_wait == 0.0
    for now in range(LEAST_BAD):
        breaker.failed(now)
    breaker.succeeded(3.0)
    assert not breaker.failed(4.0), "it is open already"
    waits = []
    for _ in range(7):
        waits.append(breaker.probe_wait)
        breaker.probed(succeeded=False)
    assert waits[:3] == [FIRST_PROBE_SECONDS * factor for factor in (1, 2, 4)]
    assert waits[-1] == LONGEST_PROBE_SECONDS
    breaker.probed(succeeded=True)
    assert breaker.closed and not breaker.failed(5.0), "the failures from before are forgotten"


@pytest.mark.parametrize(
    ("configured", "p95", "is_last", "seconds"),
    [
        (None, None, False, START_DEADLINE),
        (None, 0.1, False, SHORTEST_DEADLINE),
        (None, 0.9, False, 0.9),
        (None, 60.0, False, LONGEST_DEADLINE),
        (None, None, True, LAST_DEADLINE),
        (None, 0.1, True, LONGEST_DEADLINE),
        (None, 1.5, True, 6.0),
        (None, 60.0, True, LAST_DEADLINE),
        (12.0, 0.1, False, 12.0),
        (0.2, None, True, 0.2),
    ],
)
def test_deadlines(configured: float | None, p95: float | None, is_last: bool, seconds: float) -> None:
    assert first_word_deadline(configured, p95, is_last) == seconds


@pytest.mark.parametrize(
    ("configured", "p95", "is_last", "seconds"),
    [
        (None, None, False, START_CLAUSE_DEADLINE),
        (None, 0.1, False, SHORTEST_CLAUSE_DEADLINE),
        (None, 0.9, False, 0.9 * CLAUSE_FACTOR),
        (None, 60.0, False, LONGEST_DEADLINE),
        (None, None, True, LAST_DEADLINE),
        (None, 1.5, True, 6.0),
        (0.2, 3.0, True, 0.2),
        (0.2, 3.0, False, 0.2),
    ],
)
def test_deadlines_of_the_first_clause(
    configured: float | None, p95: float | None, is_last: bool, seconds: float
) -> None:
    assert first_clause_deadline(configured, p95, is_last) == pytest.approx(seconds)


def test_the_95th_percentile_is_of_the_last_requests() -> None:
    words = Waits()
    for number in range(LEAST_MEASURED - 1):
        words.add(number)
    assert words.p95() is None
    for number in range(100):
        words.add(number)
    assert words.p95() == 100 - MEASURED_CALLS + 47


ASKED = [Message(role="system", content="Be brief."), Message(role="user", content="When?")]


def test_a_continuation_ends_with_the_words_that_are_out() -> None:
    assert continued(ASKED, "The first ", prefills=True) == [
        *ASKED,
        Message(role="assistant", content="The first"),
    ]
    assert continued(ASKED, "The first ", prefills=False)[-1] == Message(role="user", content=GO_ON)


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("big small", ["big", SMALL]),
        ("big, small, ort:x", ["big", SMALL, "ort:x"]),
        (
            "scripted:llm|his small boat. And tiny fish scripted:llm|so",
            ["scripted:llm|his small boat. And tiny fish", "scripted:llm|so"],
        ),
        ("llama:/my small models/a.gguf big", ["llama:/my small models/a.gguf", "big"]),
        ("tiny small", ["ort:smollm2-135m-instruct", SMALL]),
        ("openai:https://a.test/v1#big-instruct small", ["openai:https://a.test/v1#big-instruct", SMALL]),
        ("openai:http://a.test/v1#q, small, big", ["openai:http://a.test/v1#q", SMALL, "big"]),
        ("vllm:Qwen/Qwen3-8B small", ["vllm:Qwen/Qwen3-8B", SMALL]),
        ("vllm:/the small models/q small.d", ["vllm:/the small models/q small.d"]),
    ],
)
def test_sizes_in_lists(text: str, specs: list[str]) -> None:
    assert listed(text, ["big"]) == specs
