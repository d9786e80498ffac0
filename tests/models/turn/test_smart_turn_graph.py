"""Smart Turn's fused network, compared with the published graph and with its unquantized weights."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import speech

from rejoinder.models.onnx.byte_weights import signed_weights_are_exact
from rejoinder.models.onnx.session import open_session
from rejoinder.models.registry import create
from rejoinder.models.turn.smart_turn import FITTED_HEAD, POOLED, SIZE, SmartTurn
from rejoinder.models.turn.smart_turn_graph import merged
from rejoinder.models.weights.fetch import locate
from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.errors import ModelError

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def path() -> Path:
    speech.need("smart-turn")
    return locate("smart-turn-v3.2") / "smart-turn-v3.2-cpu.onnx"


@pytest.fixture(scope="module")
def features(path: Path) -> list[Samples]:
    """Return the network's input at 10 ends of utterances, and in 10 pauses inside them."""
    audios = [recording.load(RATE) for recording in speech.recordings("speechocean762_adult", 5, seconds=7.0)]
    audios += [recording.load(RATE) for recording in speech.recordings("librispeech_test_other", 5)]
    audios += [audio[: len(audio) // 2] for audio in audios]
    with closing(SmartTurn(path)) as model:
        return [model._features(np.concatenate((audio, speech.silence(0.2)))) for audio in audios]


@pytest.fixture
def model(path: Path) -> onnx.ModelProto:
    return onnx.load(path)


def unrounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the published graph without quantization between its layers, and with float weights."""
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    same: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            same[node.output[0]] = same.get(node.input[0], node.input[0])
        elif node.op_type == "DequantizeLinear" and node.input[0] in weights:
            whole, scale, zero = (weights[name] for name in node.input)
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            wide = [-1 if at == axis and scale.size > 1 else 1 for at in range(whole.ndim)]
            floats = (whole.astype(np.float32) - zero.reshape(wide)) * scale.reshape(wide)
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(floats.astype(np.float32), node.output[0])
            )
        elif node.op_type == "DequantizeLinear":
            same[node.output[0]] = same[node.input[0]]
        else:
            node.input[:] = [same.get(name, name) for name in node.input]
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def heard(session: Any, features: list[Samples]) -> Samples:
    return np.array([session.run([POOLED], {"input_features": one[None]})[0].ravel() for one in features])


@pytest.fixture(scope="module")
def published(path: Path, features: list[Samples]) -> Samples:
    """Return what the published graph hears."""
    return heard(open_session(path, 1, also=POOLED), features)


@pytest.fixture(scope="module")
def right(path: Path, features: list[Samples], tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Return what the network hears without quantization."""
    floats = tmp_path_factory.mktemp("smart_turn") / "unrounded.onnx"
    onnx.save(unrounded(onnx.load(path)), floats)
    return heard(open_session(floats, 1, also=POOLED), features)


@pytest.mark.parametrize("signed", sorted({False, signed_weights_are_exact()}))
def test_it_is_closer_to_the_weights_than_the_published_graph(
    path: Path,
    model: onnx.ModelProto,
    features: list[Samples],
    published: Samples,
    right: Samples,
    signed: bool,
) -> None:
    ours = heard(open_session(path, 1, graph=merged(model, POOLED, signed)), features)
    assert ours.shape == right.shape == (20, SIZE)

    def error(found: Samples) -> float:
        return float(np.sqrt(np.mean((found - right) ** 2)) / right.std())

    assert error(ours) < 0.25  # 0.17 of the spread on other recordings
    assert error(ours) < error(published) / 1.5
    odds, other = ((found @ FITTED_HEAD.weights) + FITTED_HEAD.bias for found in (ours, right))
    assert np.median(np.abs(odds - other)) < 0.25
    # Most of the difference between the two is the quantization error of the published graph.
    assert np.median(np.abs(odds - ((published @ FITTED_HEAD.weights) + FITTED_HEAD.bias))) < 1.0


def test_last_layers_equal_the_published_ones(
    path: Path, model: onnx.ModelProto, features: list[Samples]
) -> None:
    """Given equal pooled features, the last layers answer equally, because they are the published ones."""
    session = open_session(path, 1, graph=merged(model, POOLED, signed_weights_are_exact()))
    rest = onnx.utils.Extractor(model).extract_model([POOLED], ["logits"])
    last = open_session(path, 1, graph=rest.SerializeToString())
    for one in features[:10]:
        answer, pooled = session.run(None, {"input_features": one[None]})
        assert last.run(None, {POOLED: pooled})[0] == pytest.approx(answer, abs=1e-6)


def answers(path: Path, audio: Samples) -> tuple[float, float, int]:
    """Return the probability, that of the network's own last layers, and the number of pooled features."""

    async def answers_of(model: SmartTurn) -> tuple[float, float, int]:
        sound = await model.sound(audio)
        return await model.probability(audio, ""), sound.answer, len(sound.pooled)

    with closing(create(f"smart-turn:{path}", speech.THREADS)) as model:
        return asyncio.run(answers_of(model))


def test_export_with_other_names_uses_its_own_last_layers(
    path: Path, model: onnx.ModelProto, features: list[Samples], tmp_path: Path
) -> None:
    for node in model.graph.node:
        node.input[:] = ["pooled" if name == POOLED else name for name in node.input]
        node.output[:] = ["pooled" if name == POOLED else name for name in node.output]
    onnx.save(model, tmp_path / "other.onnx")
    audio = speech.recordings("speechocean762_adult", 1)[0].load(RATE)
    probability, own, pooled = answers(tmp_path / "other.onnx", audio)
    with closing(SmartTurn(path)) as ours:
        given = {"input_features": ours._features(audio)[None]}
    assert probability == own == pytest.approx(open_session(path, 1).run(None, given)[0].item(), abs=1e-6)
    assert pooled == 0


def test_an_export_in_floats_keeps_our_last_layer(model: onnx.ModelProto, path: Path, tmp_path: Path) -> None:
    onnx.save(unrounded(model), tmp_path / "floats.onnx")
    audio = speech.recordings("speechocean762_adult", 1)[0].load(RATE)
    probability, own, pooled = answers(tmp_path / "floats.onnx", audio)
    assert pooled == SIZE
    assert probability != own
    assert probability == pytest.approx(answers(path, audio)[0], abs=0.2)


def test_graph_of_another_structure_is_refused(model: onnx.ModelProto) -> None:
    with pytest.raises(KeyError):
        merged(model, "a tensor that is not there", True)
    with pytest.raises(KeyError):
        merged(unrounded(model), POOLED, True)
    with pytest.raises(KeyError):
        merged(onnx.ModelProto(), POOLED, True)


def test_file_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        create(f"smart-turn:{tmp_path / 'broken.onnx'}", speech.THREADS)
