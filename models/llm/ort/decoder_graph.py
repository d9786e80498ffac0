"""The ONNX graph of a language model in a GGUF file.

llama.cpp's prebuilt wheel uses AVX2 at most. onnxruntime's wheel also uses newer instruction sets, and reads
a prompt several times as fast (docs/lab/latency-models.md). The graph is Llama (Touvron et al. 2023) with
grouped queries, the architecture "llama" of GGUF files.

Weights have 8 bits and one scale per row; activations have 8 bits and one scale per tensor. Two products have
a scale for each block of 32 weights and 32 activations, because a few of their values are far larger than the
others: the down projections of the first layers ("massive activations", Sun et al. 2024), and the output
layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rejoinder.models.onnx.nodes import MICROSOFT

CONTEXT = 1024
"""Most tokens of prompt and answer together."""
QUANTIZATION_BLOCK = 32
"""Values that share one scale in block quantization."""
MASSIVE_LAYERS = 3
"""First layers whose down projections are quantized in blocks."""

Weights = np.ndarray[Any, np.dtype[np.float32]]


class Graph:
    """Builds the graph, from tokens and past keys and values to the logits of the last positions.

    The input ``from`` is the first of these positions, counted from the end: -1 for the last one only.
    """

    def __init__(self, settings: dict[str, Any], tensors: dict[str, Any]) -> None:
        self._tensors = tensors
        self.layers: int = settings["llama.block_count"]
        self.heads: int = settings["llama.attention.head_count"]
        self.kv_heads: int = settings.get("llama.attention.head_count_kv", self.heads)
        self.width: int = settings["llama.embedding_length"]
        self.head_width = self.width // self.heads
        self.epsilon: float = settings["llama.attention.layer_norm_rms_epsilon"]
        self.base: float = settings.get("llama.rope.freq_base", 10000.0)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._made: set[tuple[str, str]] = set()

    def model(self) -> Any:
        """Return the whole ONNX model."""
        from onnx import TensorProto, helper

        cache = ["batch", self.kv_heads, "room", self.head_width]
        state = [f"{layer}.{part}" for layer in range(self.layers) for part in ("key", "value")]

        def values(prefix: str) -> list[Any]:
            return [
                helper.make_tensor_value_info(f"{prefix}.{name}", TensorProto.FLOAT, cache) for name in state
            ]

        self._build()
        inputs = [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "new"]),
            helper.make_tensor_value_info("last", TensorProto.INT32, ["batch"]),
            helper.make_tensor_value_info("total", TensorProto.INT32, [1]),
            helper.make_tensor_value_info("from", TensorProto.INT64, [1]),
        ]
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "asked", "words"])
        graph = helper.make_graph(
            self._nodes, "decoder", inputs + values("past"), [logits, *values("present")], self._constants
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _build(self) -> None:
        angles = np.outer(
            np.arange(CONTEXT), self.base ** (-np.arange(0, self.head_width, 2) / self.head_width)
        )
        self._constant("cos", np.cos(angles).astype(np.float32))
        self._constant("sin", np.sin(angles).astype(np.float32))
        hidden = self._embedded()
        normed = self._add(
            "SimplifiedLayerNormalization",
            [hidden, self._norm("blk.0.attn_norm")],
            "normed",
            epsilon=self.epsilon,
        )
        for layer in range(self.layers):
            hidden, normed = self._layer(layer, hidden, normed)
        end, axis = (
            self._constant(name, np.array([value]))
            for name, value in (("to", np.iinfo(np.int64).max), ("axis", 1))
        )
        self._add("Slice", [normed, "from", end, axis], "final")
        tied = "output.weight" not in self._tensors
        self._blocks("final", ["token_embd" if tied else "output"], "logits")

    def _embedded(self) -> str:
        """Look up the embeddings of the tokens, in the 8-bit weights that the output layer uses too."""
        quantized, scales = self._quantized("token_embd", self._weights("token_embd"))
        self._add("Gather", [quantized, "tokens"], "looked.up", axis=0)
        self._add("Cast", ["looked.up"], "looked.up.float", to=1)
        self._add("Sub", ["looked.up.float", self._constant("zero", np.float32(128))], "centred")
        self._add("Gather", [scales, "tokens"], "scales", axis=0)
        self._add("Unsqueeze", ["scales", self._constant("behind", np.array([-1]))], "scales.wide")
        self._add("Mul", ["centred", "scales.wide"], "scaled")
        return self._add(
            "Reshape", ["scaled", self._constant("flat", np.array([0, 0, self.width]))], "embedded"
        )

    def _layer(self, layer: int, hidden: str, normed: str) -> tuple[str, str]:
        block, name = f"blk.{layer}.", f"{layer}."
        joined = self._rows(normed, [f"{block}attn_{part}" for part in "qkv"], name + "qkv")
        past = [f"past.{name}{part}" for part in ("key", "value")]
        present = [f"present.{name}{part}" for part in ("key", "value")]
        attended = self._add(
            "GroupQueryAttention",
            [joined, "", "", *past, "last", "total", "cos", "sin"],
            [name + "attended", *present],
            MICROSOFT,
            num_heads=self.heads,
            kv_num_heads=self.kv_heads,
            do_rotary=1,
            rotary_interleaved=1,  # the order of queries and keys in GGUF files
        )
        out = self._rows(attended, [block + "attn_output"], name + "attention")
        normed, hidden = self._skip(hidden, out, block + "ffn_norm", name + "between")
        gate = self._rows(normed, [block + "ffn_gate"], name + "gate")
        up = self._rows(normed, [block + "ffn_up"], name + "up")
        self._add("QuickGelu", [gate], name + "open", MICROSOFT, alpha=1.0)
        self._add("Mul", [name + "open", up], name + "through")
        multiply = self._blocks if layer < MASSIVE_LAYERS else self._rows
        out = multiply(name + "through", [block + "ffn_down"], name + "down")
        following = f"blk.{layer + 1}.attn_norm" if layer + 1 < self.layers else "output_norm"
        normed, hidden = self._skip(hidden, out, following, name + "after")
        return hidden, normed

    def _skip(self, hidden: str, out: str, norm: str, name: str) -> tuple[str, str]:
        """Add a layer's output to the residual; return the normalised sum and the sum."""
        outputs = [name + ".normed", "", "", name]
        inputs = [hidden, out, self._norm(norm)]
        self._add("SkipSimplifiedLayerNormalization", inputs, outputs, MICROSOFT, epsilon=self.epsilon)
        return outputs[0], name

    def _rows(self, given: str, names: Sequence[str], name: str) -> str:
        """Multiply by 8-bit weights, with one scale per row of weights and one scale for the whole input."""
        weights = np.concatenate([self._weights(each) for each in names])
        scales = np.maximum(np.abs(weights).max(axis=1), 1e-12) / 127
        quantized = np.rint(weights / scales[:, None]).astype(np.int8)
        inputs = [
            given,
            self._constant(name + ".weights", quantized.T),
            self._constant(name + ".scales", scales.astype(np.float32)),
        ]
        return self._add("DynamicQuantizeMatMul", inputs, name, MICROSOFT)

    def _blocks(self, given: str, names: Sequence[str], name: str) -> str:
        """Multiply by 8-bit weights, with one scale per block of weights and per block of the input."""
        weights = self._weights(names[0])
        return self._add(
            "MatMulNBits", [given, *self._quantized(names[0], weights)], name, MICROSOFT,
            K=weights.shape[1], N=len(weights), bits=8, block_size=QUANTIZATION_BLOCK, accuracy_level=4,
        )  # fmt: skip

    def _quantized(self, name: str, weights: Weights) -> tuple[str, str]:
        made = name + ".quantized", name + ".scales"
        if made not in self._made:
            blocks = weights.reshape(len(weights), -1, QUANTIZATION_BLOCK)
            scales = np.maximum(np.abs(blocks).max(axis=2), 1e-12) / 127
            self._constant(made[0], (np.rint(blocks / scales[:, :, None]) + 128).astype(np.uint8))
            self._constant(made[1], scales.astype(np.float32))
            self._made.add(made)
        return made

    def _weights(self, name: str) -> Weights:
        from gguf import dequantize

        tensor = self._tensors[name + ".weight"]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)

    def _norm(self, name: str) -> str:
        return self._constant(name, self._weights(name))

    def _constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _add(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: str | list[str],
        domain: str = "",
        **settings: Any,
    ) -> str:
        from onnx import helper

        names = [outputs] if isinstance(outputs, str) else outputs
        self._nodes.append(helper.make_node(operator, inputs, names, domain=domain, **settings))
        return names[0]
