"""After 20 minutes the agent knows a name, a number and a decision of the first, from a bounded prompt."""

from __future__ import annotations

import pytest

from rejoinder.agent.bench.context.long_call import LAST_QUESTIONS
from rejoinder.agent.bench.context.virtual import COMPRESSIONS, NEVER_S, hold, judge
from rejoinder.pipeline import ReplyDone
from rejoinder.pipeline.context.summaries import summarise


@pytest.mark.parametrize(("context", "way"), [(1_024, "condensed"), (2_048, "summarised")])
def test_facts_of_the_first_minute_are_known_in_the_last(context: int, way: str) -> None:
    talk, llm = hold(context, COMPRESSIONS[way])
    assert [done.heard for done in talk.of(ReplyDone)][-3:] == [
        f"That is {fact}." for fact in LAST_QUESTIONS.values()
    ]
    kept = judge(talk, llm)
    assert kept.largest < 0.6 * context and bool(kept.summaries) is (way == "summarised")
    assert kept.cached > 0.8 and kept.changes < len(llm.prompts) / 6, "the prompt's start changes by blocks"
    transcript = " ".join(one["content"] for one in talk.session.history.transcript())
    assert "Adaeze Okafor" in transcript and "You sell sofas" not in transcript


def test_facts_are_kept_when_no_summary_is_ready_in_time() -> None:
    talk, llm = hold(2_048, summarise, NEVER_S)
    kept = judge(talk, llm)
    assert (kept.known, llm.open) == (3, 0) and kept.largest < 0.7 * 2_048


def test_without_summaries_they_are_forgotten() -> None:
    assert judge(*hold(1_024, None)).known == 0
