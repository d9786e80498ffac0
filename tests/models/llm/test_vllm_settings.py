"""The settings and the counts of the vLLM adapter, without vLLM."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.models.llm.vllm.speculation import with_local_draft
from rejoinder.models.llm.vllm.statistics import SchedulerCounts
from rejoinder.pipeline import LlmStatistics, ModelError

DRAFT = {"method": "draft_model", "num_speculative_tokens": 3}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"num_speculative_tokens": 3}, "write a method"),
        ({"method": "ngram"}, "how many tokens are guessed at once"),
        ({"method": "ngram", "num_speculative_tokens": True}, "how many tokens are guessed at once"),
        (DRAFT, "write which model drafts"),
        ({**NGRAM, "model": "a/b"}, "n-grams need no model: remove 'a/b'"),
        ({**NGRAM, "prompt_lookup_max": 0}, "prompt_lookup_min and prompt_lookup_max are whole numbers"),
        ({**NGRAM, "prompt_lookup_min": "2"}, "prompt_lookup_min and prompt_lookup_max are whole numbers"),
        (
            {**NGRAM, "prompt_lookup_min": 5, "prompt_lookup_max": 3},
            "prompt_lookup_min is 5 and must be at most prompt_lookup_max, which is 3",
        ),
    ],
)
def test_a_config_that_vllm_would_misread_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        VllmSettings(speculative_config=given)


@pytest.mark.parametrize(
    "given",
    [
        NGRAM,
        {**NGRAM, "prompt_lookup_min": 2, "prompt_lookup_max": 2},
        {"method": "suffix", "num_speculative_tokens": 8},
        {"model": "a/b", "num_speculative_tokens": 2},
    ],
)
def test_a_config_passes_unchanged(given: dict[str, Any]) -> None:
    assert VllmSettings(speculative_config=given).engine() == {"speculative_config": given}


def test_a_draft_in_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "small").mkdir()
    settings = VllmSettings(dtype="auto", speculative_config={**DRAFT, "model": "~/small"})
    assert with_local_draft("vllm:x", settings.engine()) == {
        "dtype": "auto",
        "speculative_config": {**DRAFT, "model": str(tmp_path / "small")},
    }
    for same in ({"speculative_config": NGRAM}, {"dtype": "auto"}):
        assert with_local_draft("vllm:x", same) == same


@pytest.mark.parametrize(
    "model, reason",
    [
        ("/no/folder", "^vllm:x: speculative_config: there is no folder /no/folder with a model that drafts"),
        ("nobody/nothing", "weights are missing; run: rejoinder models fetch nobody/nothing"),
    ],
)
def test_a_draft_that_is_not_there_is_refused(model: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        with_local_draft("vllm:x", {"speculative_config": {**DRAFT, "model": model}})


def test_the_counts_of_all_steps_are_added() -> None:
    counts = SchedulerCounts()
    cache = SimpleNamespace(requests=1, queries=100, hits=64)
    drafts = SimpleNamespace(num_draft_tokens=3, num_accepted_tokens=2)
    counts.add(SimpleNamespace(prefix_cache_stats=cache, spec_decoding_stats=None))
    earlier = counts.total
    counts.add(None)
    counts.add(SimpleNamespace(prefix_cache_stats=cache, spec_decoding_stats=drafts))
    assert counts.total == LlmStatistics(2, 200, 128, 3, 2)
    since = counts.total - earlier
    assert since == LlmStatistics(1, 100, 64, 3, 2)
    assert (since.cached_share, since.accepted_share) == (0.64, pytest.approx(2 / 3))
    assert (LlmStatistics().cached_share, LlmStatistics().accepted_share) == (0.0, 0.0)
