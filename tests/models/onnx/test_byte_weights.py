"""Products of 8-bit weights, by onnxruntime on this processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rejoinder.models.onnx.byte_weights import ZERO_POINT, signed_weights_are_exact, unsigned
from rejoinder.models.onnx.nodes import MICROSOFT
from rejoinder.models.onnx.session import open_session

LENGTH = 576
"""Length of the rows, as in the embedded language model."""


def product(weights: Any, activations: Any, signed: bool) -> Any:
    """Multiply as the language model does.

    weights: int8 [length, outputs]. activations: float32 [rows, length].
    """
    scales = np.full(weights.shape[1], 1 / 127, np.float32)
    constants = {"weights": weights if signed else unsigned(weights), "scales": scales}
    if not signed:
        constants["zero"] = np.array(ZERO_POINT)
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeMatMul", ["given", *constants], ["product"], domain=MICROSOFT)],
        "product",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, ["rows", len(weights)])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = open_session(Path("product"), 1, graph=model.SerializeToString())
    return session.run(None, {"given": activations})[0]


def worst(rows: int) -> tuple[Any, Any]:
    """Return weights and activations whose products are as large as they can be."""
    weights = np.full((LENGTH, 8), 127, np.int8)
    weights[:, ::2] = -127
    return weights, np.full((rows, LENGTH), 1.0, np.float32)


@pytest.mark.parametrize("rows", [1, 2, 5, 40])
@pytest.mark.parametrize("signed", [False, pytest.param(True, marks=pytest.mark.skipif(
    not signed_weights_are_exact(), reason="this processor does not add products of signed weights exactly"
))])  # fmt: skip
def test_largest_products_are_exact(signed: bool, rows: int) -> None:
    weights, activations = worst(rows)
    expected = activations @ (weights / 127.0)
    assert product(weights, activations, signed) == pytest.approx(expected, rel=1e-4)


@pytest.mark.skipif(
    signed_weights_are_exact(), reason="this processor adds products of signed weights exactly"
)
def test_signed_weights_are_wrong_where_the_probe_says_so() -> None:
    weights, activations = worst(1)
    expected = activations @ (weights / 127.0)
    assert np.abs(product(weights, activations, True)).max() < 0.6 * np.abs(expected).max()


def test_both_forms_agree_on_small_products() -> None:
    """Half of the range of the weights never exceeds 16 bits."""
    random = np.random.default_rng(0)
    weights = random.integers(-63, 64, (LENGTH, 16)).astype(np.int8)
    activations = random.normal(size=(5, LENGTH)).astype(np.float32)
    assert product(weights, activations, False) == pytest.approx(
        product(weights, activations, True), abs=1e-4
    )


def test_unsigned_weights_keep_their_values() -> None:
    weights = np.arange(-128, 128).astype(np.int8)
    assert (unsigned(weights).astype(int) - int(ZERO_POINT)).tolist() == weights.tolist()
