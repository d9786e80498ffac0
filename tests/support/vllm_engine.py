"""vLLM's real engine for tests, started once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.llm_contract import (
    test_a_session_with_history_is_answered_beside_another,  # noqa: F401
    test_more_than_there_are_slots_at_once,  # noqa: F401
    test_tokens_stream,  # noqa: F401
)
from support.patience import PATIENCE

from rejoinder.models.llm.ort.sampling import Sampling
from rejoinder.models.llm.vllm.adapter import Vllm
from rejoinder.models.weights.fetch import cache_dir

MODEL = cache_dir() / "smollm2-135m-instruct.safetensors"

SMALL = {
    "enforce_eager": True,
    "max_model_len": 2048,
    "max_num_seqs": 4,
    "kv_cache_memory_bytes": 128 << 20,
}

GUESS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}

GREEDY = Sampling(temperature=0.0, penalty=1.0)

pytestmark = [
    pytest.mark.vllm,
    # What vLLM and torch warn of is not ours to mend.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@dataclass
class Engine:
    """The model, the loop that it belongs to, and vLLM's own statistics."""

    run: Callable[..., Any]
    model: Vllm

    def meter(self, name: str) -> float:
        from vllm.v1.metrics.reader import get_metrics_snapshot

        matching = [metric for metric in get_metrics_snapshot() if metric.name == f"vllm:{name}"]
        ours = self.model._engine.model_config.served_model_name  # another engine's stay when it is gone
        (found,) = [metric for metric in matching if metric.labels["model_name"] == ours]
        return float(found.value)

    async def until(self, *names: str) -> None:
        """Wait until these are all 0."""
        async with asyncio.timeout(PATIENCE):
            while any(self.meter(name) for name in names):  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def until_idle(self) -> None:
        await self.until("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        assert self.model._engine.get_num_unfinished_requests() == 0
