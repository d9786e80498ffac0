"""A small model of the architecture "qwen2" in a GGUF file, with weights that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from tokenizers import pre_tokenizers

WORDS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "<|im_start|>", "<|im_end|>", "<tool_call>"]
BASE, EPSILON = 1_000_000.0, 1e-6
Arrays = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def write(path: Path, arrays: Arrays, shape: Mapping[str, int], template: str) -> None:
    """Write the file. shape: block_count, embedding_length and the like, by the names of ``GGUFWriter``."""
    writer = GGUFWriter(path, "qwen2")
    for name, size in shape.items():
        getattr(writer, f"add_{name}")(size)
    writer.add_rope_freq_base(BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(WORDS)
    writer.add_token_types([1] * (len(WORDS) - 3) + [3, 3, 4])
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(len(WORDS) - 2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
