"""llama.cpp with a small stand-in: no model thinks before it answers, which would keep the caller waiting."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import replace
from pathlib import Path

from support.small_gguf import small_tokenizer

from rejoinder.agent.bench.brains.shapes import DECODERS
from rejoinder.agent.bench.brains.stand_in import make
from rejoinder.models.llm.llama_cpp import LlamaCpp

QWEN_ENDING = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
"""How Qwen3's template ends the prompt of a model that must not think."""


def stand_in(folder: Path, name: str, prefix: str = "") -> Path:
    small_tokenizer(folder / "tokenizer.gguf", prefix)
    small = replace(DECODERS[name], layers=2, feed_forward=512, words=300)
    make(small, folder / "tokenizer.gguf", folder / f"{name}.gguf")
    return folder / f"{name}.gguf"


def test_no_model_thinks_before_it_answers(tmp_path: Path) -> None:
    model = LlamaCpp(stand_in(tmp_path, "qwen3-0.6b", QWEN_ENDING), 1)
    asked = urllib.request.Request(
        f"{model._server.listening_address}/apply-template",
        json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode(),
        {"Authorization": f"Bearer {model._key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            assert json.load(response)["prompt"].endswith("assistant\n<think>\n\n</think>\n\n")
    finally:
        asyncio.run(model.aclose())
