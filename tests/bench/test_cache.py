"""The bench of the cache: real models in live calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.servers.redis import RedisServer
from support.speech import need
from typer.testing import CliRunner

from rejoinder.agent.bench.caching.judging import judge_half, strangers
from rejoinder.agent.bench.caching.live import live
from rejoinder.agent.cli.app import app
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


@pytest.mark.server
def test_lookups_in_a_redis_are_timed_beside_those_in_sqlite(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rejoinder.models.caching.cache.LOOKUP_S", 20.0)  # as above
    monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)
    monkeypatch.setattr("rejoinder.agent.cli.bench.cache.ENTRIES", 20)
    monkeypatch.setattr("rejoinder.agent.cli.bench.cache.LOOKUPS", 40)
    written = tmp_path / "report.json"
    given = ["bench", "cache", "--calls", "0", "--redis", redis.url, "--json", str(written)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    times = json.loads(written.read_text())["lookups_ms"]
    assert set(times) == {"SQLite", "Redis"}
    assert all(0.0 < each["p50"] <= each["p95"] <= each["p99"] for each in times.values())


def test_a_redis_that_cannot_be_timed_is_named() -> None:
    given = ["bench", "cache", "--calls", "0", "--redis", "redis://:secret@127.0.0.1:1/0"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 1
    assert "cache: the store failed" in done.output and "127.0.0.1:1" in done.output
    assert "secret" not in done.output
