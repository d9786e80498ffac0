"""Smart Turn's network with fused attention and GELU: closer to its weights, in 3/5 of the time.

The published graph (https://github.com/pipecat-ai/smart-turn) quantizes every tensor to 8 bits, with ranges
fixed at export. Here only inputs of products with weights are quantized, with the range that they have at run
time. The weights and everything after the pooled features are as published.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rejoinder.models.onnx.nodes import MICROSOFT, Nodes

INPUT = "input_features"
"""Name of the graph's input, the log-mel spectrogram [1, 80, frames]."""
ENCODER = "inner.encoder."
"""Prefix of the names of the encoder's weights."""
HEAD_WIDTH = 64
"""Width of an attention head in Whisper's encoders of all sizes (Radford et al. 2022)."""
EPSILON = 1e-5
"""Epsilon of the layer norms in Whisper's encoders of all sizes."""


def merged(model: Any, pooled: str) -> bytes:
    """Return the serialised fused graph, with the tensor ``pooled`` as a further, last output.

    Run it with one sound at a time: sounds in a batch would share a quantization range and so change each
    other's results. Raises KeyError if the model is not an 8-bit export of Smart Turn v3.
    """
    from onnx import TensorProto, helper

    try:
        published, built = _Published(model), Nodes()
        _pool(built, published, _encoded(built, published), published.made[pooled].output[0])
        _rest(built, model, pooled)
    except (IndexError, ValueError) as error:
        raise KeyError("the graph is not an 8-bit export of Smart Turn v3") from error
    outputs = [*model.graph.output, helper.make_tensor_value_info(pooled, TensorProto.FLOAT, None)]
    graph = helper.make_graph(built.nodes, "smart-turn", list(model.graph.input), outputs, built.constants)
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return bytes(made.SerializeToString())


class _Weights(NamedTuple):
    """8-bit weights [inputs, outputs], and a scale for each output."""

    columns: Any
    scales: Any


class _Published:
    """Finds weights in the published graph by the names of the biases, which the export keeps."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        self.made = {name: node for node in model.graph.node for name in node.output}
        self._users: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)

    def product(self, bias: str) -> Any:
        """Return the MatMul whose quantized result this bias is added to."""
        (add,) = self._users[bias]
        return self.made[self.made[self.made[add.input[0]].input[0]].input[0]]

    def weights(self, product: Any) -> _Weights:
        """Return the weights of a MatMul."""
        columns, scales, _ = (self.constants[name] for name in self.made[product.input[1]].input)
        return _Weights(columns, scales)

    def attention(self, layer: str) -> tuple[_Weights, Any]:
        """Return the weights of queries, keys and values, joined by columns, and their biases."""
        query, value = (self.product(f"{layer}{part}_proj.bias") for part in "qv")
        (key,) = (
            node
            for node in self._users[query.input[0]]
            if node.op_type == "MatMul" and node.output[0] not in (query.output[0], value.output[0])
        )
        each = [self.weights(product) for product in (query, key, value)]
        biases = [self.constants[f"{layer}{part}_proj.bias"] for part in "qv"]
        biases.insert(1, np.zeros_like(biases[0]))  # Whisper's keys have none
        columns, scales = (np.concatenate(parts, axis=-1) for parts in zip(*each, strict=True))
        return _Weights(columns, scales), np.concatenate(biases)

    def convolution(self, name: str) -> tuple[_Weights, Any]:
        """Return a convolution over three frames as weights for a matrix product, and its bias."""
        bias, scale, _ = (self.constants[one] for one in self.made[f"{name}.bias"].input)
        kernel, scales, _ = (
            self.constants[f"{name}.weight_{part}"] for part in ("quantized", "scale", "zero_point")
        )
        columns = kernel.transpose(2, 1, 0).reshape(-1, len(kernel))
        return _Weights(columns, scales), (bias * scale).astype(np.float32)


def _encoded(built: Nodes, published: _Published) -> str:
    """Add the encoder and return the name of its output, 50 rows per second."""
    positions = published.constants[ENCODER + "embed_positions.weight"]
    rows = built.add("Transpose", INPUT, perm=[0, 2, 1])
    for name, step in ((ENCODER + "conv1", 1), (ENCODER + "conv2", 2)):
        rows = _convolved(built, rows, 2 * len(positions), step, *published.convolution(name))
    rows = built.add("Add", rows, built.constant(positions))
    layer = 0
    while f"{ENCODER}layers.{layer}.fc1.bias" in published.constants:
        rows = _layer(built, published, rows, f"{ENCODER}layers.{layer}.")
        layer += 1
    return _normed(built, published, rows, ENCODER + "layer_norm")


def _convolved(built: Nodes, rows: str, frames: int, step: int, weights: _Weights, bias: Any) -> str:
    rounded = _rounded(built, built.add("Pad", rows, built.constant([0, 1, 0, 0, 1, 0])))
    shifted = [built.cut(rounded[0], 1, first, first + frames, step) for first in range(3)]
    together = built.add("Concat", *shifted, axis=2)
    return _gelu(built, _product(built, (together, *rounded[1:]), weights, bias))


def _layer(built: Nodes, published: _Published, rows: str, name: str) -> str:
    given = _rounded(built, _normed(built, published, rows, name + "self_attn_layer_norm"))
    weights, bias = published.attention(name + "self_attn.")
    heads = len(bias) // 3 // HEAD_WIDTH
    columns, scales, biases = (built.constant(value) for value in (*weights, bias))
    inputs = [given[0], columns, biases, given[1], scales, "", given[2]]
    heard = built.add("QAttention", *inputs, domain=MICROSOFT, num_heads=heads)
    rows = _sum(built, rows, _linear(built, published, heard, name + "self_attn.out_proj.bias"))
    normed = _normed(built, published, rows, name + "final_layer_norm")
    wide = _gelu(built, _linear(built, published, normed, name + "fc1.bias"))
    return _sum(built, rows, _linear(built, published, wide, name + "fc2.bias"))


def _pool(built: Nodes, published: _Published, rows: str, name: str) -> None:
    """Add attention pooling: the sum of all rows, weighted by their attention."""
    inner = built.add("Tanh", _linear(built, published, rows, "inner.pool_attention.0.bias"))
    shares = built.add("Softmax", _linear(built, published, inner, "inner.pool_attention.2.bias"), axis=1)
    built.add("ReduceSum", built.add("Mul", rows, shares), built.constant([1]), name=name, keepdims=0)


def _rest(built: Nodes, model: Any, pooled: str) -> None:
    """Add the published last layers unchanged; their cost is negligible."""
    from onnx.utils import Extractor

    rest = Extractor(model).extract_model([pooled], [output.name for output in model.graph.output]).graph
    built.nodes += rest.node
    built.constants += rest.initializer


def _linear(built: Nodes, published: _Published, rows: str, bias: str) -> str:
    weights = published.weights(published.product(bias))
    return _product(built, _rounded(built, rows), weights, published.constants[bias])


def _rounded(built: Nodes, rows: str) -> tuple[str, str, str]:
    """Quantize rows to 8 bits by their own range; return the names of the rows, scale and zero point."""
    from onnx import helper

    whole = f"rounded_{len(built.nodes)}"
    outputs = (whole, f"{whole}_scale", f"{whole}_zero")
    built.nodes.append(helper.make_node("DynamicQuantizeLinear", [rows], outputs))
    return outputs


def _product(built: Nodes, rounded: tuple[str, str, str], weights: _Weights, bias: Any) -> str:
    rows, scale, zero = rounded
    columns, scales, biases = (built.constant(value) for value in (*weights, bias))
    inputs = [rows, columns, scale, scales, zero, "", biases]
    return built.add("MatMulIntegerToFloat", *inputs, domain=MICROSOFT)


def _normed(built: Nodes, published: _Published, rows: str, name: str) -> str:
    weights = (built.constant(published.constants[f"{name}.{part}"]) for part in ("weight", "bias"))
    return built.add("LayerNormalization", rows, *weights, axis=-1, epsilon=EPSILON)


def _gelu(built: Nodes, rows: str) -> str:
    return built.add("Gelu", rows, domain=MICROSOFT)


def _sum(built: Nodes, rows: str, more: str) -> str:
    """Add two tensors with "Sum". onnxruntime fuses "Add" and a norm into a node that is 8 times as slow."""
    return built.add("Sum", rows, more)
