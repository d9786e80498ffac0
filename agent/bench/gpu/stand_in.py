"""Models with the real shapes and random weights: as fast as the real models, with meaningless output.

They measure time and memory on machines without the real weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

STAND_IN_MODELS: dict[str, dict[str, Any]] = {
    "tiny": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "8b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
    },
}
"""Shapes of Qwen3-8B and Qwen3-30B-A3B (their config.json), with the vocabulary of the tokenizer here."""
COMMON = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""Fields that both configurations share."""
RECOGNISERS = {
    "tiny": (128, 2, 2, 2, 80),
    "large-v3-turbo": (1280, 20, 32, 4, 128),
    "large-v3": (1280, 20, 32, 32, 128),
}
"""Width, heads, layers of the encoder and of the decoder, mel bands (Radford et al. 2022, table 1)."""
WHISPER_TOKENS = 51_866
"""Number of tokens in the vocabulary of Whisper large-v3."""
CONTROL_TOKENS = {
    50257: "<|endoftext|>",
    50258: "<|startoftranscript|>",
    50259: "<|en|>",
    50360: "<|transcribe|>",
    50363: "<|nospeech|>",
    50364: "<|notimestamps|>",
}
"""Whisper's tokens that CTranslate2 looks for by name."""


def language_model(folder: Path, shape: str) -> Path:
    """Write a configuration and a tokenizer for vLLM, without weights (``load_format = "dummy"``).

    The tokenizer and its chat template are those of the embedded language model.
    """
    from transformers import AutoTokenizer

    from rejoinder.models.weights.fetch import fetch

    (source,) = fetch("smollm2-135m-instruct").glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    config = {**COMMON, **STAND_IN_MODELS[shape], "vocab_size": len(tokenizer)}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


def recogniser(folder: Path, shape: str) -> Path:
    """Write a Whisper model for CTranslate2, with random float16 weights."""
    from ctranslate2.specs import whisper_spec

    width, heads, encoder_layers, decoder_layers, mels = RECOGNISERS[shape]
    random = np.random.default_rng(0)

    def matrix(*size: int) -> Any:
        return (random.standard_normal(size, np.float32) * 0.02).astype(np.float16)

    def linear(layer: Any, rows: int, columns: int) -> None:
        layer.weight, layer.bias = matrix(rows, columns), matrix(rows)

    def norm(layer: Any) -> None:
        layer.gamma, layer.beta = np.ones(width, np.float16), np.zeros(width, np.float16)

    def block(layer: Any) -> None:
        norm(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 3 * width, width)
        linear(layer.self_attention.linear[1], width, width)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, 4 * width, width)
        linear(layer.ffn.linear_1, width, 4 * width)

    spec = whisper_spec.WhisperSpec(encoder_layers, heads, decoder_layers, heads)
    for convolution, channels in ((spec.encoder.conv1, mels), (spec.encoder.conv2, width)):
        convolution.weight, convolution.bias = matrix(width, channels, 3), matrix(width)
    for part, length in ((spec.encoder, 1500), (spec.decoder, 448)):
        part.position_encodings.encodings = matrix(length, width)
        norm(part.layer_norm)
        for layer in part.layer:
            block(layer)
    for layer in spec.decoder.layer:
        norm(layer.attention.layer_norm)
        linear(layer.attention.linear[0], width, width)
        linear(layer.attention.linear[1], 2 * width, width)
        linear(layer.attention.linear[2], width, width)
    spec.decoder.embeddings.weight = matrix(WHISPER_TOKENS, width)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.register_vocabulary([CONTROL_TOKENS.get(number, f"t{number}") for number in range(WHISPER_TOKENS)])
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [], []
    spec.config.lang_ids, spec.config.alignment_heads = [], []
    spec.validate()
    spec.optimize(quantization="float16")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return folder
