"""Stand-ins for language models: the sizes and tensors of the real ones, loaded by the real adapters."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.small_gguf import small_tokenizer

from rejoinder.agent.bench.brains import measuring
from rejoinder.agent.bench.brains.measuring import Brain, BrainTimes, measure, report, table
from rejoinder.agent.bench.brains.shapes import DECODERS, QUANTIZED
from rejoinder.agent.bench.brains.stand_in import WEIGHT_SPREAD, blocks
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.fetch import WeightsMissing
from rejoinder.pipeline import ModelError

PARAMETERS = {
    "smollm2-360m-instruct": 361.8e6,
    "lfm2.5-350m": 354.5e6,
    "gemma-3-270m-it": 268.1e6,
    "qwen3-0.6b": 596.0e6,
}
"""As the model cards state them."""


@pytest.mark.parametrize("name", DECODERS)
def test_a_shape_has_the_size_of_the_model(name: str) -> None:
    shape = DECODERS[name]
    assert shape.parameters == pytest.approx(PARAMETERS[name], rel=0.001)
    assert 0.97 < shape.size / catalog()[name].size < 1.0, "without tokenizer and settings"


@pytest.mark.parametrize("kind", ["Q5_0", "Q8_0", "Q4_K", "Q6_K"])
def test_random_blocks_are_weights_around_zero(kind: str) -> None:
    from gguf import GGMLQuantizationType, dequantize

    raw = blocks(kind, QUANTIZED[kind][0] * 1000, np.random.default_rng(0))
    assert raw.shape == (1000, QUANTIZED[kind][1])
    weights = dequantize(raw, GGMLQuantizationType[kind])
    assert WEIGHT_SPREAD / 2 < weights.std() < WEIGHT_SPREAD * 2 and abs(weights.mean()) < WEIGHT_SPREAD / 5


def test_every_architecture_is_loaded_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape with three layers, a short vocabulary and, where its heads allow it, a small width."""
    for name, shape in DECODERS.items():
        width = 256 if shape.architecture == "qwen3" else shape.width
        attention = (1,) if shape.attention else ()
        small = replace(shape, layers=3, width=width, feed_forward=512, words=320, attention=attention)
        monkeypatch.setitem(DECODERS, name, small)
    small_tokenizer(tmp_path / "tokenizer.gguf")

    def locate(name: str) -> Path:
        if name in DECODERS:
            raise WeightsMissing(name, "not fetched")
        return tmp_path

    monkeypatch.setattr(measuring, "locate", locate)
    monkeypatch.setattr(measuring, "INSTRUCTION_WORDS", 5)
    stand_ins = tmp_path / "made"
    stand_ins.mkdir()
    specs = [spec for spec in measuring.BRAINS if spec.startswith("llama:")]
    for attempt in range(8):  # a model of random weights and 258 tokens may end its answer at once
        try:
            brains = asyncio.run(measure(specs, 1, 4, stand_ins))
            break
        except ModelError as error:
            assert attempt < 7 and ("too short" in str(error) or "no words" in str(error))
    assert [(brain.spec, brain.stand_in) for brain in brains] == [(spec, True) for spec in specs]
    assert all(
        times.cold > 0 and times.warmed > 0 and times.rate > 0 for brain in brains for times in brain.rounds
    )


def test_a_model_without_weights_and_shape_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="no stand-in for whisper-base; there are: smollm2-360m"):
        measuring.file_of("llama:whisper-base", tmp_path)


def test_models_are_compared_within_each_round(tmp_path: Path) -> None:
    """The machine is twice as slow in the second round, and both models are."""
    one = Brain(
        "ort:smollm2-135m-instruct", tmp_path, 1, False, [BrainTimes(0.4, 0.1, 40), BrainTimes(0.8, 0.2, 20)]
    )
    two = Brain("llama:qwen3-0.6b", tmp_path, 2, True, [BrainTimes(2.0, 0.3, 10), BrainTimes(4.0, 0.6, 5)])
    found = report([one, two])["llama:qwen3-0.6b"]
    assert (found["rate_ratio"], found["warmed_ratio"]) == (0.25, pytest.approx(3.0))
    assert (found["cold_ms"], found["tokens_per_s"]) == (3000, 7.5)
    console = Console(width=80)
    with console.capture() as shown:
        console.print(table([one, two]))
    assert "llama:qwen3-0.6b*" in shown.get()
