"""vLLM's real engine with a model that drafts, and with quantised weights (tests/vllm/variants.py)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.llm_contract import answer, prompt_of
from support.vllm_engine import (
    GREEDY,
    MODEL,
    SMALL,
    Engine,
    pytestmark,  # noqa: F401
)

from rejoinder.models.llm.vllm.adapter import Vllm
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.models.llm.vllm.tools import open_vllm
from rejoinder.pipeline import MeasuredLlm

QUESTIONS = ("How long is a week?", "Tell me a story about the sea.")
TOKENS = 40
ENGLISH = "The sun rises in the east and sets in the west. There are seven days in a week, and twelve months"


def variant(name: str) -> Path:
    return MODEL.with_suffix(f".{name}")


@asynccontextmanager
async def opened(model: Path, **settings: Any) -> AsyncIterator[Vllm]:
    llm = open_vllm(str(model), 1, VllmSettings(**{**SMALL, "max_model_len": 512, **settings}), GREEDY)
    try:
        yield llm
    finally:
        await llm.aclose()


def greedy_answers(prompts: list[list[int]]) -> list[list[int]]:
    """Return the most likely tokens after each prompt in 32 bits, as transformers computes them."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    options = {"max_new_tokens": TOKENS, "do_sample": False, "temperature": None, "top_p": None}
    return [
        model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), **options)[
            0, len(prompt) :
        ].tolist()
        for prompt in prompts
    ]


def test_a_model_that_drafts_changes_no_answer() -> None:
    """In 32 bits: in 16, a run of several tokens rounds otherwise than runs of one."""
    draft = {"method": "draft_model", "model": str(variant("draft")), "num_speculative_tokens": 3}

    async def written() -> tuple[list[list[int]], list[list[int]]]:
        async with opened(MODEL, dtype="float32", speculative_config=draft) as llm:
            assert isinstance(llm, MeasuredLlm) and not llm.statistics.drafted_tokens
            prompts = [llm._prompt(prompt_of(question)) for question in QUESTIONS]
            answers, steps = [], 0
            for prompt in prompts:
                tokens: list[int] = []
                async with aclosing(llm._generate(prompt, TOKENS, {})) as outputs:
                    async for output in outputs:
                        tokens += output.token_ids
                        steps += 1
                answers.append(tokens)
            engine = Engine(asyncio.run, llm)
            await engine.until_idle()
            counts = llm.statistics
            assert counts.drafted_tokens == engine.meter("spec_decode_num_draft_tokens")
            assert counts.accepted_tokens == engine.meter("spec_decode_num_accepted_tokens")
            assert 0.1 < counts.accepted_share < 0.9
            assert steps < len(QUESTIONS) * TOKENS - counts.accepted_tokens / 2, "several tokens in one step"
            return prompts, answers

    prompts, answers = asyncio.run(written(), debug=True)
    assert answers == greedy_answers(prompts)


@pytest.mark.parametrize(
    "name, method, megabytes, perplexity",
    [("gptq", "gptq", 125, 40), ("awq", "awq", 125, 40), ("w8a8", "compressed-tensors", 170, 30)],
)
def test_quantised_weights_answer(name: str, method: str, megabytes: int, perplexity: float) -> None:
    """A wrong order of the packed values would make perplexities of thousands."""
    folder = variant(name)
    assert (folder / "model.safetensors").stat().st_size < megabytes * 10**6

    async def asked() -> tuple[str, float]:
        async with opened(folder) as llm:
            assert method in llm._engine.model_config.quantization
            return "".join(await answer(llm, prompt_of(QUESTIONS[0]), TOKENS)), await surprise(llm)

    words, found = asyncio.run(asked(), debug=True)
    assert "week" in words
    assert found < perplexity


async def surprise(llm: Vllm) -> float:
    """Return the perplexity of ``ENGLISH``."""
    from vllm import SamplingParams

    prompt = llm._tokenizer.encode("<|im_start|>" + ENGLISH, add_special_tokens=False)
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=0)
    async with aclosing(llm._engine.generate({"prompt_token_ids": prompt}, sampling, "english")) as outputs:
        last = [output async for output in outputs][-1]
    found = [
        one[token].logprob for one, token in zip(last.prompt_logprobs[1:], prompt[1:], strict=True) if one
    ]
    assert len(found) == len(prompt) - 1
    return math.exp(-sum(found) / len(found))
