"""Make a folder that vLLM can load out of the GGUF file of the embedded language model, once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rejoinder.models.weights.fetch import cache_dir, fetch

NAME = "smollm2-135m-instruct"


def folder() -> Path:
    """Return where it lies, beside the weights that it is made of."""
    return cache_dir() / f"{NAME}.safetensors"


def convert(target: Path) -> None:
    """Write weights in bfloat16, configuration, tokenizer and chat template; all of them or nothing."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    (source,) = fetch(NAME).glob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    making = target.with_name(f"{target.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    model.save_pretrained(making)
    tokenizer.save_pretrained(making)
    making.rename(target)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if not folder().is_dir():
        convert(folder())
    sys.stdout.write(f"{folder()}\n")
