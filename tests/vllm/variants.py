"""Make variants of the embedded language model for vLLM, once each: three are quantised, and one drafts.

Quantised weights are rounded to the nearest value, without calibration. The tests need the formats of GPTQ,
AWQ and compressed-tensors, in which larger models come from their makers. The model that drafts
lacks some layers.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import to_safetensors
import torch
from safetensors.torch import load_file, save_file

GROUP = 32
"""Weights with a common scale. Smaller groups are more accurate."""
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Order of eight 4-bit values in an integer (AutoAWQ, ``awq/modules/linear/gemm.py``)."""
LEFT_OUT = range(12, 20)
"""Layers without which the model still chooses the same token nearly half of the time."""
Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]
Variant = Callable[[Tensors, Config], tuple[Tensors, Config]]


def gptq(weight: torch.Tensor) -> Tensors:
    """Return 4-bit symmetric weights. weight: [output, input].

    Eight values along the input share an integer. The format stores zero points minus one (AutoGPTQ,
    ``qlinear_cuda_old.py``): 8 is the middle, stored as 7.
    """
    groups = weight.float().T.reshape(-1, GROUP, weight.shape[0])
    scales = groups.abs().amax(1, keepdim=True).clamp(min=1e-8) / 7
    values = (torch.round(groups / scales).clamp(-8, 7) + 8).reshape(weight.shape[1], -1)
    zeros = torch.full((groups.shape[0], weight.shape[0]), 7)
    return {
        "qweight": packed(values.T).T,
        "qzeros": packed(zeros),
        "scales": scales[:, 0].to(torch.bfloat16),
        "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
    }


def awq(weight: torch.Tensor) -> Tensors:
    """Return 4-bit weights with zero points. weight: [output, input].

    Eight values along the output share an integer.
    """
    groups = weight.float().T.reshape(-1, GROUP, weight.shape[0])
    low, high = groups.amin(1, keepdim=True).clamp(max=0), groups.amax(1, keepdim=True).clamp(min=0)
    scales = (high - low).clamp(min=1e-8) / 15
    zeros = torch.round(-low / scales)
    values = (torch.round(groups / scales) + zeros).clamp(0, 15).reshape(weight.shape[1], -1)
    return {
        "qweight": packed(values, AWQ_ORDER),
        "qzeros": packed(zeros[:, 0], AWQ_ORDER),
        "scales": scales[:, 0].to(torch.bfloat16),
    }


def w8a8(weight: torch.Tensor) -> Tensors:
    """Return 8-bit weights with a scale for each output. weight: [output, input]."""
    scales = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
    values = torch.round(weight.float() / scales).clamp(-128, 127)
    return {"weight": values.to(torch.int8), "weight_scale": scales}


def packed(values: torch.Tensor, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Return 4-bit values [rows, columns] as 32-bit integers [rows, columns / 8]."""
    eights = values.to(torch.int64).reshape(values.shape[0], -1, 8)
    whole = sum(eights[..., place] << 4 * index for index, place in enumerate(order))
    assert isinstance(whole, torch.Tensor)
    return torch.where(whole < 2**31, whole, whole - 2**32).to(torch.int32)


FOUR_BITS = {"bits": 4, "group_size": GROUP}
EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
INT8 = {
    "targets": ["Linear"],
    "weights": {**EIGHT_BITS, "strategy": "channel", "dynamic": False},
    "input_activations": {**EIGHT_BITS, "strategy": "token", "dynamic": True},
}
GPTQ = {"quant_method": "gptq", **FOUR_BITS, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", **FOUR_BITS, "zero_point": True, "version": "gemm"}
W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": INT8},
}


def quantised(layer: Callable[[torch.Tensor], Tensors], settings: Config) -> Variant:
    """Return what makes a quantised model. layer: returns the tensors of one linear layer."""

    def make(tensors: Tensors, config: Config) -> tuple[Tensors, Config]:
        made: Tensors = {}
        for name, weight in tensors.items():
            parts = layer(weight) if name.endswith("_proj.weight") else {"weight": weight}
            made |= {f"{name.removesuffix('weight')}{part}": tensor for part, tensor in parts.items()}
        return made, {**config, "quantization_config": settings}

    return make


def without_layers(tensors: Tensors, config: Config) -> tuple[Tensors, Config]:
    """Leave ``LEFT_OUT`` out."""
    layers = [layer for layer in range(config["num_hidden_layers"]) if layer not in LEFT_OUT]
    made: Tensors = {}
    for name, tensor in tensors.items():
        *before, number, rest = (
            re.split(r"(?<=layers\.)(\d+)", name) if ".layers." in name else (name, "", "")
        )
        if not number:
            made[name] = tensor
        elif int(number) in layers:
            made[f"{before[0]}{layers.index(int(number))}{rest}"] = tensor
    return made, {**config, "num_hidden_layers": len(layers)}


VARIANTS: dict[str, Variant] = {
    "gptq": quantised(gptq, GPTQ),
    "awq": quantised(awq, AWQ),
    "w8a8": quantised(w8a8, W8A8),
    "draft": without_layers,
}
"""What makes the tensors and the configuration of each variant out of those of the whole model."""


def folder(variant: str) -> Path:
    """Return where a variant lies, beside the weights that it is made of."""
    return to_safetensors.folder().with_suffix(f".{variant}")


def convert(variant: str) -> None:
    """Write one of ``VARIANTS``; all of its files or nothing."""
    source, target = to_safetensors.folder(), folder(variant)
    making = target.with_name(f"{target.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(source, making, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    before = load_file(source / "model.safetensors"), json.loads((source / "config.json").read_text())
    tensors, config = VARIANTS[variant](*before)
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, making / "model.safetensors", metadata={"format": "pt"})
    (making / "config.json").write_text(json.dumps(config, indent=2))
    making.rename(target)


if __name__ == "__main__":
    for each in VARIANTS:
        if not folder(each).is_dir():
            convert(each)
        sys.stdout.write(f"{folder(each)}\n")
