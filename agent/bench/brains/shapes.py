"""The shapes of the catalog's language models, from their config.json, and the tensors of GGUF files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

QUANTIZED = {
    "F32": (1, 4),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q6_K": (256, 210),
}
"""Weights and bytes of a block, by quantization (ggml-org/llama.cpp, ggml/src/ggml-common.h)."""
UNEVEN = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
"""What llama.cpp takes instead for rows that are no multiple of 256 (src/llama-quant.cpp)."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """A decoder.

    architecture: as GGUF names it. head: width of an attention head. attention: the layers that have
    attention; the others are convolutions (Liquid's LFM2); empty for all. mixed: whether the file is a
    Q4_K_M, otherwise it is a Q8_0. settings: further metadata, named without the architecture.
    """

    architecture: str
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    words: int
    mixed: bool = True
    attention: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], str]]:
        """Yield the name, the shape (rows first) and the quantization of each tensor."""
        normed = self.architecture in ("qwen3", "gemma3", "lfm2")
        yield "token_embd.weight", (self.words, self.width), self._kind("Q6_K", self.width)
        yield (
            ("token_embd_norm" if self.architecture == "lfm2" else "output_norm") + ".weight",
            (self.width,),
            "F32",
        )
        for layer in range(self.layers):
            block, more = f"blk.{layer}.", "Q6_K" if self._more_bits(layer) else "Q4_K"
            shapes: dict[str, tuple[tuple[int, ...], str]] = {"attn_norm": ((self.width,), "F32")}
            shapes["ffn_norm"] = ((self.width,), "F32")
            if self.attention and layer not in self.attention:
                shapes["shortconv.conv"] = ((self.width, 3), "F32")
                shapes["shortconv.in_proj"] = ((3 * self.width, self.width), "Q4_K")
                shapes["shortconv.out_proj"] = ((self.width, self.width), "Q4_K")
            else:
                shapes["attn_q"] = ((self.heads * self.head, self.width), "Q4_K")
                shapes["attn_k"] = ((self.kv_heads * self.head, self.width), "Q4_K")
                shapes["attn_v"] = ((self.kv_heads * self.head, self.width), more)
                shapes["attn_output"] = ((self.width, self.heads * self.head), "Q4_K")
                shapes |= {name: ((self.head,), "F32") for name in ("attn_q_norm", "attn_k_norm") if normed}
            shapes["ffn_gate"] = shapes["ffn_up"] = ((self.feed_forward, self.width), "Q4_K")
            shapes["ffn_down"] = ((self.width, self.feed_forward), more)
            if self.architecture == "gemma3":
                shapes |= {name: ((self.width,), "F32") for name in ("post_attention_norm", "post_ffw_norm")}
            for name, (shape, kind) in shapes.items():
                yield f"{block}{name}.weight", shape, self._kind(kind, shape[-1])

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(
            prod(shape) // QUANTIZED[kind][0] * QUANTIZED[kind][1] for _, shape, kind in self.tensors()
        )

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(prod(shape) for _, shape, _ in self.tensors())

    def _more_bits(self, layer: int) -> bool:
        """Return whether Q4_K_M spends 6 bits on a layer's values and down projection (llama-quant.cpp)."""
        eighth = self.layers // 8
        return layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2

    def _kind(self, wanted: str, row: int) -> str:
        if wanted == "F32" or not self.mixed:
            return wanted if wanted == "F32" else "Q8_0"
        return wanted if row % 256 == 0 else UNEVEN[wanted]


DECODERS = {
    "smollm2-360m-instruct": DecoderShape(
        "llama", 32, 960, 2560, 15, 5, 64, 49152, mixed=False,
        settings={"rope.dimension_count": 64, "rope.freq_base": 100_000.0},
    ),
    "lfm2.5-350m": DecoderShape(
        "lfm2", 16, 1024, 4608, 16, 8, 64, 65536, attention=(2, 5, 8, 10, 12, 14),
        settings={"shortconv.l_cache": 3, "rope.freq_base": 1_000_000.0},
    ),
    "gemma-3-270m-it": DecoderShape(
        "gemma3", 18, 640, 2048, 4, 1, 256, 262144,
        settings={
            "attention.key_length": 256, "attention.value_length": 256,
            "attention.sliding_window": 512, "rope.freq_base": 1_000_000.0,
        },
    ),
    "qwen3-0.6b": DecoderShape(
        "qwen3", 28, 1024, 3072, 16, 8, 128, 151936,
        settings={
            "attention.key_length": 128, "attention.value_length": 128, "rope.freq_base": 1_000_000.0,
        },
    ),
}  # fmt: skip
"""By the catalog's name."""
