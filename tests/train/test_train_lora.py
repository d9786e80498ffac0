"""Calls are exported, a LoRA is trained on them, and the embedded model speaks as the calls do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.weights.fetch import fetch
from rejoinder.pipeline import Message

pytestmark = pytest.mark.train

SYSTEM = "You answer in one sentence."
ANSWER = "The word of the day is marmalade."
QUESTIONS = (
    "What is the word of the day?",
    "Tell me the word of the day.",
    "What's the word of the day, please?",
    "Which word is it today?",
)
HEARD = "What is the word of the day today?"
"""No call has this question."""
STEPS = 12
LOSSES = re.compile(r"(examples|pairs): (\d+) steps, loss ([\d.]+) -> ([\d.]+)")


def traces() -> str:
    """The trace of a server: in each call, the first answer is interrupted and corrected."""
    lines = []
    for number, question in enumerate(QUESTIONS):
        words = [question, "It is a sunny day, and—", "No, I asked for the word of the day.", ANSWER]
        said = [
            {"role": "assistant" if place % 2 else "user", "content": text}
            for place, text in enumerate(words)
        ]
        conversation = {
            "messages": [
                {"role": "system", "content": SYSTEM},
                *(said if number == 0 else [said[0], said[3]]),
            ],
            "tools": [],
            "model": "ort:smollm2-135m-instruct",
        }
        lines.append(json.dumps({"call": str(number), "consent": True, "conversation": conversation}))
    return "\n".join(lines) + "\n"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # With two threads each step waits at barriers for the slower one, minutes on a busy machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def answered(path: Path) -> str:
    """The embedded model's answer to a question that no call has."""

    async def reply() -> str:
        model = OrtLlm(path, 1)
        messages: list[Message] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": HEARD},
        ]
        try:
            return "".join([piece async for piece in model.reply(messages)])
        finally:
            await model.aclose()

    return asyncio.run(reply())


def test_exported_calls_train_a_lora_that_the_embedded_model_loads(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(traces())
    given = ["traces.jsonl", "--consented", "--out", "sft.jsonl", "--pairs", "pairs.jsonl"]
    exported = run(tmp_path, "-m", "rejoinder", "export", "calls", *given)
    assert exported.returncode == 0, exported.stderr
    assert "1 corrections, 1 preference pairs" in " ".join(exported.stderr.split())

    given = ["sft.jsonl", "tuned.gguf", "--pairs", "pairs.jsonl", "--steps", str(STEPS), "--adapter", "lora"]
    trained = run(tmp_path, str(ROOT / "examples" / "train_lora.py"), *given)
    assert trained.returncode == 0, trained.stderr[-3000:]
    examples, pairs = LOSSES.findall(trained.stdout)
    assert examples[:2] == ("examples", str(STEPS)) and pairs[:2] == ("pairs", str(STEPS // 4))
    assert float(examples[3]) < float(examples[2]) / 2
    assert (tmp_path / "lora" / "adapter_model.safetensors").is_file()

    (source,) = fetch("smollm2-135m-instruct").glob("*.gguf")
    assert "marmalade" not in answered(source)
    assert "marmalade" in answered(tmp_path / "tuned.gguf")
