"""A real language model for calls in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rejoinder.agent.simulate.virtual_clock import in_real_time
from rejoinder.models.loading import open_variant
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import Llm, Models

STREAM_CLOSE_SECONDS = 2.0
"""Longest wait for the streams of a model's last answers to close, in seconds."""


@asynccontextmanager
async def language_model(spec: str, placement: Placement = HERE) -> AsyncIterator[Llm]:
    """Load a language model, such as ``openai:http://localhost:11434/v1#qwen3``, for the length of the block.

    No other task may run at its end. Raises ModelError. Cancelling waits until it is loaded, then closes it.
    """
    others = Models(ScriptedVad(), ScriptedStt([]), ScriptedLlm(), ScriptedTts())
    opened = open_variant(others, {"llm": spec}, placement=placement)
    with in_real_time():
        models = await opened.__aenter__()
    try:
        yield models.llm
    finally:
        with in_real_time():
            await opened.__aexit__(None, None, None)
            gc.collect()  # the loop closes the HTTP client's generators in tasks of its own,
            await asyncio.sleep(0)  # which it starts in its next step
            if closing := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(closing, timeout=STREAM_CLOSE_SECONDS)
