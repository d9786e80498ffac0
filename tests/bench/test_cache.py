"""The bench of the cache: real models in live calls."""

from __future__ import annotations

import asyncio

import pytest
from support.speech import need

from rejoinder.agent.bench.caching.judging import judge_half, strangers
from rejoinder.agent.bench.caching.live import live
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline import Options

SPECS = Specs(tts="hibari")


def test_the_judged_half_has_no_false_hit() -> None:
    judged = judge_half(1)
    assert (judged.paraphrases >= 80, judged.contrasts >= 100) == (True, True)
    assert judged.false == {}
    assert judged.hits > 0.5 * judged.paraphrases
    assert strangers()[0] == 0


@pytest.mark.weights
def test_a_caller_who_asks_what_another_one_asked_hears_the_cached_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine needs more than a call would wait.
    monkeypatch.setattr("rejoinder.models.caching.cache.LOOKUP_S", 20.0)
    monkeypatch.setattr("rejoinder.pipeline.caching.search.CACHE_WAIT_S", 20.0)
    need(SPECS.stt, SPECS.llm, SPECS.vad, SPECS.turn)
    question = ("What is the capital of France?", "What is the capital of France?")

    async def talk() -> None:
        async with open_models(SPECS) as models:
            ((first, second),) = await live(models, Options(), [question], lambda: None)
            assert first.match == "cache_miss"
            assert second.match in ("cache_exact", "cache_similar"), (first, second)

    asyncio.run(talk())
