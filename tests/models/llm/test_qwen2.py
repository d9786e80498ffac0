"""Qwen2 in the embedded graph, compared with the equations, on small random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.toy_qwen2 import BASE, EPSILON, WORDS, Arrays, write

from rejoinder.models.llm.ort.decoder import Decoder, KvCacheSlot
from rejoinder.models.llm.ort.decoder_graph import prepared, tokenizer

LAYERS, HEADS, KV_HEADS, HEAD, WIDTH, INNER = 2, 4, 2, 32, 128, 256
SHAPE = {
    "block_count": LAYERS,
    "embedding_length": WIDTH,
    "feed_forward_length": INNER,
    "head_count": HEADS,
    "head_count_kv": KV_HEADS,
}


def weights(embeddings: str) -> Arrays:
    """Random weights. embeddings: "tied", "twice" (the output layer is the same, less rounded) or "two"."""
    chance = np.random.default_rng(1)

    def matrix(rows: int, columns: int) -> Any:
        return (chance.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)

    found: Arrays = {"output_norm.weight": np.ones(WIDTH, np.float32)}
    found["token_embd.weight"] = chance.normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    if embeddings == "twice":
        found["output.weight"] = found["token_embd.weight"]
        found["token_embd.weight"] = (np.rint(found["output.weight"] * 8) / 8).astype(np.float32)
    elif embeddings == "two":
        found["output.weight"] = matrix(len(WORDS), WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            found[f"{block}attn_{name}.weight"] = 2 * matrix(rows, WIDTH)
            found[f"{block}attn_{name}.bias"] = chance.normal(size=rows).astype(np.float32)
        found[f"{block}attn_output.weight"] = matrix(WIDTH, HEADS * HEAD)
        found[f"{block}ffn_gate.weight"] = matrix(INNER, WIDTH)
        found[f"{block}ffn_up.weight"] = matrix(INNER, WIDTH)
        found[f"{block}ffn_down.weight"] = matrix(WIDTH, INNER)
        for name in ("attn_norm", "ffn_norm"):
            found[f"{block}{name}.weight"] = chance.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    return found


def expected(arrays: Arrays, tokens: list[int]) -> Any:
    """Return the logits after each token by the equations of Qwen2 (arXiv:2407.10671), float64."""

    def normed(x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * arrays[f"{name}.weight"]

    def turned(x: Any) -> Any:
        angles = np.outer(np.arange(len(tokens)), BASE ** (-np.arange(0, HEAD, 2) / HEAD))[:, None]
        first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    x = arrays["token_embd.weight"][tokens].astype(np.float64)
    future = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        n = normed(x, block + "attn_norm")
        q, k, v = (
            (n @ arrays[f"{block}attn_{name}.weight"].T + arrays[f"{block}attn_{name}.bias"]).reshape(
                len(tokens), -1, HEAD
            )
            for name in "qkv"
        )
        k, v = (np.repeat(each, HEADS // KV_HEADS, axis=1) for each in (turned(k), v))
        scores = np.einsum("ahd,bhd->hab", turned(q), k) / np.sqrt(HEAD) + future
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        heard = np.einsum("hab,bhd->ahd", shares, v).reshape(len(tokens), -1)
        x = x + heard @ arrays[block + "attn_output.weight"].T
        n = normed(x, block + "ffn_norm")
        gate = n @ arrays[block + "ffn_gate.weight"].T
        x = (
            x
            + (gate / (1 + np.exp(-gate)) * (n @ arrays[block + "ffn_up.weight"].T))
            @ arrays[block + "ffn_down.weight"].T
        )
    return normed(x, "output_norm") @ arrays.get("output.weight", arrays["token_embd.weight"]).T


@pytest.mark.parametrize("embeddings", ["tied", "twice", "two"])
def test_the_graph_computes_the_equations(tmp_path: Path, embeddings: str) -> None:
    arrays, path = weights(embeddings), tmp_path / "toy.gguf"
    write(path, arrays, SHAPE, "{{ messages }}")
    slot = KvCacheSlot(Decoder(prepared(path) / "model.onnx", 1))
    tokens = np.random.default_rng(2).integers(0, len(WORDS), 24).tolist()
    slot.logits(tokens[:9])  # the rest is read with a cache
    rows = np.array(slot.rows(tokens, 12))
    wanted = expected(arrays, tokens)[-12:]
    for got, want in zip(rows, wanted, strict=True):
        assert np.corrcoef(got, want)[0, 1] > 0.96  # 4 and 8 bits; a wrong rotation makes 0.6 to 0.8
    assert rows.std() == pytest.approx(wanted.std(), rel=0.05)


def test_text_is_cut_as_qwen_was_trained() -> None:
    settings = {
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.token_type": [1] * (len(WORDS) - 3) + [3, 3, 4],
        "tokenizer.ggml.pre": "qwen2",
    }
    made = tokenizer(settings)
    cuts = made.pre_tokenizer.pre_tokenize_str("I'll pay 42 euros,\n\n  he said!")
    assert [text for text, _ in cuts] == [
        "I", "'ll", "Ġpay", "Ġ", "4", "2", "Ġeuros", ",ĊĊ", "Ġ", "Ġhe", "Ġsaid", "!",
    ]  # fmt: skip
    assert made.encode("<tool_call>he<|im_end|>").tokens == ["<tool_call>", "he", "<|im_end|>"]
    assert made.encode("e\u0301").tokens == made.encode("\u00e9").tokens
