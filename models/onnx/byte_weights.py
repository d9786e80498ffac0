"""Weights of 8 bits in the form that this processor multiplies exactly.

onnxruntime multiplies unsigned activations by signed or unsigned weights. With signed weights, x86 processors
without VNNI add pairs of products in 16 bits and cut off what does not fit: AMD before Zen 4, Intel's servers
before Cascade Lake, Intel's desktops before Rocket Lake. A language model then answers with random words.
Unsigned weights with a zero point are exact everywhere, but slower with VNNI
(https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rejoinder.models.onnx.session import CPU

ZERO_POINT = np.uint8(128)
"""The unsigned weight that means 0."""
PROBE_LENGTH = 64
"""Length of the rows whose product shows how this processor adds."""


@cache
def signed_weights_are_exact() -> bool:
    """Return whether onnxruntime adds products with signed weights exactly on this processor."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    largest = np.full((PROBE_LENGTH, 1), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["inputs", "weights"], ["product"])],
        "probe",
        [helper.make_tensor_value_info("inputs", TensorProto.UINT8, [1, PROBE_LENGTH])],
        [helper.make_tensor_value_info("product", TensorProto.INT32, [1, 1])],
        [numpy_helper.from_array(largest, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[CPU])
    (product,) = session.run(None, {"inputs": np.full((1, PROBE_LENGTH), 255, np.uint8)})
    return int(product[0, 0]) == 255 * 127 * PROBE_LENGTH


def unsigned(weights: Any) -> Any:
    """Return signed weights, int8 of any shape, as unsigned ones of the same shape with ``ZERO_POINT``."""
    return (weights.astype(np.int16) + int(ZERO_POINT)).astype(np.uint8)
