"""Convert a language model in a GGUF file into a folder for onnxruntime: graph, tokenizer, settings.

llama.cpp's prebuilt wheel uses AVX2 at most. onnxruntime's wheel also uses newer instruction sets, and reads
a prompt several times as fast (docs/lab/latency-models.md). The graph is Llama (Touvron et al. 2023) with
grouped queries, the architecture "llama" of GGUF files; or Qwen2, with biases for queries, keys and values.

Weights have 8 bits and one scale per row; activations have 8 bits and one scale per tensor. Two products have
a scale for each block of 32 weights and 32 activations, because a few of their values are far larger than the
others: the down projections of the first layers ("massive activations", Sun et al. 2024), and the output
layer. Weights with one scale per row are signed or unsigned, by the processor (``onnx/byte_weights.py``).
The feed-forward layers of a larger model have 4 bits and a scale for each block. That is as good there, and
reads a token in three quarters of the time (docs/lab/latency-models.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rejoinder.models.onnx.byte_weights import ZERO_POINT, signed_weights_are_exact, unsigned
from rejoinder.models.onnx.nodes import MICROSOFT
from rejoinder.pipeline.errors import ModelError

CONTEXT = 2048
"""Most tokens of prompt and answer together."""
QUANTIZATION_BLOCK = 32
"""Values that share one scale in block quantization."""
MASSIVE_LAYERS = 3
"""First layers whose down projections are quantized in blocks."""
SAME_MATRIX = 0.2
"""Two matrices that differ by less than this share of their mean size are one, in fewer and in more bits."""
GRAPH_FORMAT = 6
"""Version of the converted folder. A folder of another version is converted again."""

Weights = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Family:
    """What differs between the supported architectures.

    words: how the tokenizer cuts text into words, a name of llama.cpp. interleaved: the order of queries and
    keys in the GGUF file: 1 if the two halves of a rotated pair are neighbours. biased: names of tensors with
    a bias. halved: whether the weights of feed-forward layers have 4 bits.
    """

    words: str
    interleaved: int
    biased: tuple[str, ...] = ()
    halved: bool = False


FAMILIES = {
    "llama": Family("smollm", 1),
    "qwen2": Family("qwen2", 0, ("attn_q", "attn_k", "attn_v"), halved=True),
}
"""The supported families by the architecture in the GGUF file."""
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pattern of a word, from its published tokenizer.json."""


def prepared(path: Path, signed: bool | None = None) -> Path:
    """Return the converted folder of a GGUF file. The first call takes seconds and writes it beside the file.

    signed: as for ``converted``. Raises ModelError for a model of another architecture, and OSError if the
    folder cannot be written.
    """
    signed = signed_weights_are_exact() if signed is None else signed
    folder = converted(path, signed)
    if not folder.exists():
        with TemporaryDirectory(dir=path.parent, suffix=".part") as part:
            _prepare(path, Path(part) / "model", signed)
            try:
                (Path(part) / "model").rename(folder)
            except OSError:
                if not folder.exists():  # if it exists, another process has converted the same file
                    raise
        form = folder.name.rpartition("-")[0]
        for older in path.parent.glob(f"{path.stem}.*.onnx*"):
            if not older.name.startswith(f"{form}-"):
                rmtree(older, ignore_errors=True)
    return folder


def converted(path: Path, signed: bool | None = None) -> Path:
    """Return the folder that a GGUF file is converted to, whether it exists or not.

    signed: the form of the weights, None for that of this processor. Machines with both may share a folder.
    """
    signed = signed_weights_are_exact() if signed is None else signed
    stat = path.stat()
    form = f".{stat.st_size:x}-{stat.st_mtime_ns:x}.onnx{GRAPH_FORMAT}"
    return path.with_suffix(f"{form}-{'signed' if signed else 'unsigned'}")


def _prepare(path: Path, folder: Path, signed: bool) -> None:
    import gguf
    import onnx

    file = gguf.GGUFReader(path)
    settings = {name: field.contents() for name, field in file.fields.items()}
    if unknown := foreign(settings, [tensor.name for tensor in file.tensors]):
        raise ModelError("ort", f"{path} has an unsupported setting, {unknown}: try llama:{path}")
    folder.mkdir()
    graph = Graph(settings, {tensor.name: tensor for tensor in file.tensors}, signed)
    onnx.save(graph.model(), folder / "model.onnx")
    tokenizer(settings).save(str(folder / "tokenizer.json"))
    kept = {
        "template": settings["tokenizer.chat_template"],
        "end": settings["tokenizer.ggml.eos_token_id"],
    }
    (folder / "settings.json").write_text(json.dumps(kept), encoding="utf-8")


def foreign(settings: dict[str, Any], tensors: Sequence[str]) -> str:
    """Return the setting or tensor of a model that is not supported, or "" if all are, as in SmolLM2."""
    architecture = settings.get("general.architecture")
    family = FAMILIES.get(str(architecture))
    if family is None:
        return f"general.architecture = {architecture!r}"
    known = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": family.words,
        "tokenizer.ggml.add_bos_token": False,
    }
    for name, value in known.items():
        if settings.get(name, value) != value or (value and name not in settings):
            return f"{name} = {settings.get(name)!r}"
    if "tokenizer.chat_template" not in settings:
        return "no tokenizer.chat_template"
    strange = [
        name
        for name in settings
        if name.startswith((f"{architecture}.rope.scaling", f"{architecture}.attention.key_length"))
    ]
    biases = tuple(f".{name}.bias" for name in family.biased)
    strange += [
        name
        for name in tensors
        if (name.endswith(".bias") and not name.endswith(biases)) or "rope_freqs" in name
    ]
    return strange[0] if strange else ""


def tokenizer(settings: dict[str, Any]) -> Any:
    """Return the byte-level tokenizer in a GGUF file. Both families read numbers digit by digit."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    words: list[str] = settings["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in settings["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, merges))
    if settings["tokenizer.ggml.pre"] == "qwen2":
        made.normalizer = normalizers.NFC()
        cuts = [
            pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    else:
        cuts = [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    made.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    made.decoder = decoders.ByteLevel()
    kinds = settings["tokenizer.ggml.token_type"]
    of_kind = {kind: [word for word, one in zip(words, kinds, strict=True) if one == kind] for kind in (3, 4)}
    made.add_special_tokens([AddedToken(word, special=True) for word in of_kind[3]])  # gguf's CONTROL
    made.add_tokens([AddedToken(word, normalized=False) for word in of_kind[4]])  # gguf's USER_DEFINED
    return made


class Graph:
    """Builds the graph, from tokens and past keys and values to the logits of the last positions.

    The input ``from`` is the first of these positions, counted from the end: -1 for the last one only.
    signed: whether weights with a scale per row are signed.
    """

    def __init__(self, settings: dict[str, Any], tensors: dict[str, Any], signed: bool) -> None:
        self._tensors = tensors
        self._signed = signed
        name: str = settings["general.architecture"]
        self._family = FAMILIES[name]
        self.layers: int = settings[f"{name}.block_count"]
        self.heads: int = settings[f"{name}.attention.head_count"]
        self.kv_heads: int = settings.get(f"{name}.attention.head_count_kv", self.heads)
        self.width: int = settings[f"{name}.embedding_length"]
        self.head_width = self.width // self.heads
        self.epsilon: float = settings[f"{name}.attention.layer_norm_rms_epsilon"]
        self.base: float = settings.get(f"{name}.rope.freq_base", 10000.0)
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
        self._constant("zero.point", ZERO_POINT)
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
        self._blocks("final", ["output" if "output.weight" in self._tensors else "token_embd"], "logits")

    def _embeddings(self) -> str:
        """Return the name of the embeddings. Some files have them twice, with more bits for the logits."""
        if "output.weight" not in self._tensors:
            return "token_embd"
        few, many = (self._weights(name, rows=slice(None, None, 100)) for name in ("token_embd", "output"))
        return "output" if np.abs(few - many).mean() < SAME_MATRIX * np.abs(many).mean() else "token_embd"

    def _embedded(self) -> str:
        """Look up the embeddings of the tokens, in the 8-bit weights that the output layer uses too."""
        name = self._embeddings()
        quantized, scales = self._quantized(name, self._weights(name))
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
            rotary_interleaved=self._family.interleaved,
        )
        out = self._rows(attended, [block + "attn_output"], name + "attention")
        normed, hidden = self._skip(hidden, out, block + "ffn_norm", name + "between")
        multiply = self._halves if self._family.halved else self._rows
        gate = multiply(normed, [block + "ffn_gate"], name + "gate")
        up = multiply(normed, [block + "ffn_up"], name + "up")
        self._add("QuickGelu", [gate], name + "open", MICROSOFT, alpha=1.0)
        self._add("Mul", [name + "open", up], name + "through")
        if layer < MASSIVE_LAYERS and not self._family.halved:
            multiply = self._blocks
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
            self._constant(name + ".weights", quantized.T if self._signed else unsigned(quantized.T)),
            self._constant(name + ".scales", scales.astype(np.float32)),
            "" if self._signed else "zero.point",
        ]
        if f"{names[0]}.bias" in self._tensors:
            biases = np.concatenate([self._weights(each, "bias") for each in names])
            inputs.append(self._constant(name + ".bias", biases))
        return self._add("DynamicQuantizeMatMul", inputs, name, MICROSOFT)

    def _blocks(self, given: str, names: Sequence[str], name: str) -> str:
        """Multiply by 8-bit weights, with one scale per block of weights and per block of the input."""
        weights = self._weights(names[0])
        return self._in_blocks(given, self._quantized(names[0], weights), weights, name, bits=8)

    def _halves(self, given: str, names: Sequence[str], name: str) -> str:
        """Multiply by 4-bit weights, with one scale per block of weights and per block of the input."""
        weights = self._weights(names[0])
        blocks = weights.reshape(len(weights), -1, QUANTIZATION_BLOCK)
        largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), 2)
        # There are values from -8 to 7, so the sign of the scale makes the largest one -8.
        scales = np.where(np.abs(largest) < 1e-12, -1e-12, largest / -8)
        values = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
        made = (
            self._constant(name + ".quantized", values[:, :, ::2] | values[:, :, 1::2] << 4),
            self._constant(name + ".scales", scales[:, :, 0].astype(np.float32)),
        )
        return self._in_blocks(given, made, weights, name, bits=4)

    def _in_blocks(self, given: str, made: tuple[str, str], weights: Weights, name: str, bits: int) -> str:
        return self._add(
            "MatMulNBits", [given, *made], name, MICROSOFT,
            K=weights.shape[1], N=len(weights), bits=bits, block_size=QUANTIZATION_BLOCK, accuracy_level=4,
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

    def _weights(self, name: str, part: str = "weight", rows: slice = slice(None)) -> Weights:
        from gguf import dequantize

        tensor = self._tensors[f"{name}.{part}"]
        return np.ascontiguousarray(dequantize(tensor.data[rows], tensor.tensor_type), dtype=np.float32)

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
