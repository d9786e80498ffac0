"""The statistics of one engine of vLLM, as its scheduler counts them."""

from __future__ import annotations

from typing import Any

from rejoinder.pipeline.llm_statistics import LlmStatistics


class SchedulerCounts:
    """Adds up the statistics that vLLM's scheduler sends with each step. ``total`` is the sum.

    vLLM's Prometheus metrics have the same numbers, but all engines of a process share them, and the start of
    an engine removes those of earlier ones. So the adapter passes ``logger`` to vLLM as one of its
    ``stat_loggers`` (vllm/v1/metrics/loggers.py).
    """

    def __init__(self) -> None:
        self.total = LlmStatistics()

    def add(self, scheduler: Any) -> None:
        """Add the statistics of one step: vLLM's ``SchedulerStats``, None if a step has none."""
        if scheduler is None:
            return
        cache, drafts = scheduler.prefix_cache_stats, scheduler.spec_decoding_stats
        self.total += LlmStatistics(
            prompts=cache.requests,
            prompt_tokens=cache.queries,
            cached_tokens=cache.hits,
            drafted_tokens=drafts.num_draft_tokens if drafts else 0,
            accepted_tokens=drafts.num_accepted_tokens if drafts else 0,
        )

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """Return a logger for vLLM, which calls ``add``."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        counts = self

        class CountingLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM has no types
            """Passes the scheduler's statistics on; vLLM itself keeps the others."""

            def __init__(self) -> None:
                """Keep nothing."""

            def record(
                self,
                scheduler_stats: Any,
                iteration_stats: Any,
                mm_cache_stats: Any = None,
                engine_idx: int = 0,
            ) -> None:
                """Add the statistics of one step."""
                counts.add(scheduler_stats)

            def log_engine_initialized(self) -> None:
                """Log nothing."""

        return CountingLogger()
