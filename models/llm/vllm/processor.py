"""What vLLM's build for processors cannot do, refused before it fails in the middle of an answer.

Each rule was found with version 0.32 (``make test-vllm``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rejoinder.models.llm.vllm.speculation import SPECULATIVE
from rejoinder.pipeline.errors import ModelError

CPU_DEFAULTS = {"kv_cache_memory_bytes": 1 << 30, "block_size": 32}
"""Settings without a GPU. vLLM's own would fill most of the memory and not cache prompts below 128 tokens."""


def check_for_processor(name: str, given: Mapping[str, Any], temperature: float, quantised: bool) -> None:
    """Raise ModelError if vLLM's build for processors cannot run a model with these settings.

    Guesses: the sampling parameters of guessed tokens are uninitialised, because ``_expand_kernel_impl`` in
    vllm/utils/cpu_triton_utils.py writes to a copy. The engine ends at an index that is out of bounds.
    fp8: the operator that quantises weights while they are loaded is declared without arguments
    (``static_scaled_fp8_quant``).

    name: of the model, for the error. given: the engine's arguments. quantised: whether the weights are
    quantised already.
    """
    if SPECULATIVE in given and temperature > 0:
        raise ModelError(
            name,
            f"on a processor, speculative decoding needs a temperature of 0, and it is {temperature:g}: "
            'remove speculative_config, or write "temperature": 0 into the model\'s generation_config.json',
        )
    if given.get("quantization") == "fp8" and not quantised:
        raise ModelError(
            name,
            "on a processor, vLLM cannot convert weights to fp8: unset quantization, and use weights that "
            "are quantised already, in the format of GPTQ, AWQ or compressed-tensors (W8A8)",
        )
