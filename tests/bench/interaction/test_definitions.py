"""tau-voice's figures on timelines made by hand."""

from __future__ import annotations

import pytest

from rejoinder.agent.bench.cases.overlap import BACKCHANNEL
from rejoinder.agent.bench.interaction.definitions import (
    ASIDE,
    CUT_IN,
    FINE_TICK_SECONDS,
    LONG_TICK_SECONDS,
    RESPONSE,
    TIC,
    TURN,
    YIELD,
    SaidSpan,
    ScoredEvent,
    figures,
    score,
    ticks,
)

Wanted = tuple[str, bool, float | None]


def scored(
    said: list[SaidSpan], agent: list[tuple[float, float]], tick: float = LONG_TICK_SECONDS
) -> list[Wanted]:
    return [
        (event.category, event.correct, None if event.latency is None else round(event.latency, 3))
        for event in score(said, agent, 20.0, tick)
    ]


def test_a_party_speaks_in_each_tick_that_its_audio_touches() -> None:
    assert ticks([(0.39, 0.41), (0.8, 1.0)], 6, 0.2) == [False, True, True, False, True, False]


@pytest.mark.parametrize(
    ("agent", "wanted"),
    [
        ([(2.6, 5.0)], [(RESPONSE, True, 0.6)]),
        ([(1.9, 5.0)], [(CUT_IN, False, None)]),
        ([(2.1, 5.0)], []),  # in the tick after the turn, an answer counts neither way
        ([(1.2, 1.4), (2.6, 5.0)], [(CUT_IN, False, None), (RESPONSE, True, 0.6)]),
    ],
)
def test_the_answer_to_a_turn(agent: list[tuple[float, float]], wanted: list[Wanted]) -> None:
    assert scored([SaidSpan(TURN, 1.0, 2.0)], agent) == wanted


def test_in_short_ticks_a_fast_answer_is_an_answer() -> None:
    assert scored([SaidSpan(TURN, 1.0, 2.0)], [(2.1, 5.0)], FINE_TICK_SECONDS) == [(RESPONSE, True, 0.1)]


def test_a_turn_is_not_answered_if_the_caller_has_to_speak_again() -> None:
    said = [SaidSpan(TURN, 1.0, 2.0), SaidSpan(TURN, 6.0, 7.0)]
    assert scored(said, [(7.6, 9.0)]) == [(RESPONSE, False, None), (RESPONSE, True, 0.6)]
    assert scored(said, []) == [(RESPONSE, False, None)]  # the last turn of a call may have no answer yet


@pytest.mark.parametrize(
    ("stops", "wanted"),
    [
        (3.5, [(YIELD, True, 0.6), (RESPONSE, True, 1.0)]),
        (4.75, [(YIELD, True, 1.8), (RESPONSE, True, 1.0)]),
        (4.9, [(YIELD, False, None), (RESPONSE, True, 1.0)]),
        (5.1, [(YIELD, False, None)]),  # an interruption that ends over the agent asks for no answer
    ],
)
def test_an_interruption(stops: float, wanted: list[Wanted]) -> None:
    assert scored([SaidSpan(TURN, 3.0, 5.0)], [(1.0, stops), (6.0, 8.0)]) == wanted


@pytest.mark.parametrize("category", [BACKCHANNEL, TIC, ASIDE])
@pytest.mark.parametrize(
    ("gap", "wanted"),
    [
        ((3.4, 3.41), None),  # no whole tick is empty
        ((3.4, 3.6), 0.4),
        ((4.0, 4.2), None),
        ((4.0, 9.0), None),  # it stops after the window
    ],
)
def test_the_agent_must_go_on(category: str, gap: tuple[float, float], wanted: float | None) -> None:
    events = scored([SaidSpan(category, 3.0, 3.3)], [(1.0, gap[0]), (gap[1], 10.0)])
    assert events == [(category, wanted is None, wanted)]


@pytest.mark.parametrize("category", [TIC, ASIDE])
@pytest.mark.parametrize(
    ("answer", "wanted"),
    [(3.2, (False, -0.2)), (3.8, (False, 0.4)), (5.4, (False, 2.0)), (5.6, (True, None))],
)
def test_the_agent_must_not_answer(category: str, answer: float, wanted: tuple[bool, float | None]) -> None:
    assert scored([SaidSpan(category, 3.0, 3.4)], [(answer, 9.0)]) == [(category, *wanted)]


def test_a_reply_that_goes_on_while_the_listener_still_hums_counts_as_an_interruption() -> None:
    events = scored([SaidSpan(BACKCHANNEL, 3.0, 4.0)], [(1.0, 3.2), (3.6, 9.0)])
    assert events == [(BACKCHANNEL, False, 0.2), (CUT_IN, False, None)]


def test_the_eight_figures() -> None:
    events = [
        ScoredEvent(RESPONSE, 0.0, True, 0, 0.4),
        ScoredEvent(RESPONSE, 0.0, True, 0, 0.8),
        ScoredEvent(RESPONSE, 0.0, False, 0),
        ScoredEvent(CUT_IN, 0.0, False, 0),
        ScoredEvent(YIELD, 0.0, True, 0, 0.2),
        ScoredEvent(YIELD, 0.0, False, 0),
        ScoredEvent(BACKCHANNEL, 0.0, False, 0, 0.4),
        ScoredEvent(BACKCHANNEL, 0.0, True, 0),
        ScoredEvent(TIC, 0.0, True, 0),
    ]
    found = figures(events)
    assert found.response_latency == pytest.approx(0.6)
    assert found.response_rate == pytest.approx(2 / 3)
    assert found.agent_interruptions == pytest.approx(1 / 3)
    assert (found.yield_latency, found.yield_rate) == (0.2, 0.5)
    assert (found.backchannels, found.tics, found.asides) == (0.5, 1.0, None)
    assert (found.turns, found.interruptions, found.cut_ins) == (3, 2, 1)
    assert (found.backchannel_count, found.tic_count, found.aside_count) == (2, 1, 0)
    assert figures([]).response_latency is None
