"""GGUF files with real shapes and random weights: as fast as the real models, with meaningless answers."""

from __future__ import annotations

from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.agent.bench.brains.shapes import QUANTIZED, DecoderShape

WEIGHT_SPREAD = 0.02
"""Standard deviation of the weights, about; it keeps the activations finite."""
KEPT_METADATA = (
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.merges",
    "tokenizer.chat_template",
)
"""Metadata taken from another GGUF file."""
NORMAL_TOKEN = 1
"""GGUF's type of a token that is text."""
STATED_CONTEXT = 8192
"""Context length in tokens that the file states."""


def make(shape: DecoderShape, like: Path, path: Path, seed: int = 0) -> None:
    """Write a GGUF file with random weights.

    like: the GGUF file whose tokenizer and chat template it gets. Further tokens are made up until there are
    as many as the real model has. Raises OSError.
    """
    import gguf

    chance = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, shape.architecture)
    _describe(writer, shape)
    _tokens(writer, shape.words, like)
    for name, dimensions, kind in shape.tensors():
        if kind == "F32":
            writer.add_tensor(name, np.ones(dimensions, np.float32))
            continue
        raw = blocks(kind, prod(dimensions), chance).reshape(dimensions[0], -1)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def blocks(kind: str, weights: int, chance: np.random.Generator) -> Any:
    """Return the bytes of quantized random weights around 0: uint8, one row per block.

    All bits are random except the scales, which lie where ggml/src/ggml-common.h has them.
    """
    size, width = QUANTIZED[kind]
    made = np.frombuffer(chance.bytes(weights // size * width), np.uint8).reshape(-1, width).copy()
    at, scales = {
        "Q5_0": (0, (WEIGHT_SPREAD / 9,)),
        "Q8_0": (0, (WEIGHT_SPREAD / 74,)),
        "Q4_K": (0, (WEIGHT_SPREAD / 300, WEIGHT_SPREAD / 40)),
        "Q6_K": (208, (WEIGHT_SPREAD / 1400,)),
    }[kind]
    made[:, at : at + 2 * len(scales)] = np.array(scales, np.float16).view(np.uint8)
    return made


@cache
def _metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file. Reading it takes seconds; do not change it."""
    import gguf

    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def _describe(writer: Any, shape: DecoderShape) -> None:
    name = shape.architecture
    convolved = shape.attention and [
        shape.kv_heads if n in shape.attention else 0 for n in range(shape.layers)
    ]
    for key, value in {
        "context_length": STATED_CONTEXT,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "vocab_size": shape.words,
        **shape.settings,
    }.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{name}.{key}", value)
    writer.add_float32(f"{name}.attention.layer_norm_rms_epsilon", 1e-5)
    if convolved:
        writer.add_array(f"{name}.attention.head_count_kv", convolved)
    else:
        writer.add_uint32(f"{name}.attention.head_count_kv", shape.kv_heads)


def _tokens(writer: Any, words: int, like: Path) -> None:
    given = _metadata(like)
    known: list[str] = given["tokenizer.ggml.tokens"]
    made_up = [f"w{number}" for number in range(words - len(known))]
    taken = set(known)
    made_up = [f"{word}w" if word in taken else word for word in made_up]
    writer.add_tokenizer_model(given[KEPT_METADATA[0]])
    writer.add_tokenizer_pre(given[KEPT_METADATA[1]])
    writer.add_token_list(known + made_up)
    writer.add_token_types([*given["tokenizer.ggml.token_type"], *[NORMAL_TOKEN] * len(made_up)])
    writer.add_token_merges(given[KEPT_METADATA[2]])
    writer.add_chat_template(given[KEPT_METADATA[3]])
    for name in ("bos", "eos", "unknown", "padding"):
        if (value := given.get(f"tokenizer.ggml.{name}_token_id")) is not None:
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", value)
    writer.add_add_bos_token(False)
