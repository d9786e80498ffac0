"""What a model's configuration in Triton tells about requests and responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRUE = ("true", "yes", "1", "t", "y")
"""Spellings of yes in parameters (tensorrt_llm_bls/1/model.py, preprocessing/1/model.py)."""
TRITON_SAMPLING = {"temperature": 0.4, "top_p": 0.9}
"""Mild sampling. Both of Triton's backends for language models know these names."""
EMPTY_WORDS = ("bad_words", "stop_words")
"""Inputs that TensorRT-LLM's older ensembles require, though they may be empty."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer writes for a character of which some bytes are still missing."""


@dataclass(frozen=True, slots=True)
class TritonModel:
    """A language model in Triton: TensorRT-LLM's ensemble or BLS model, or one of the vLLM backend.

    inputs: names of its inputs. required: those that every request must have.
    is_vllm: it takes sampling parameters as parameters of the request instead of inputs.
    accumulates: each response has the whole text so far, not only what is new.
    keeps_prompts: it has a prefix cache.
    adds_special: its tokenizer may add special tokens to a text.

    https://github.com/triton-inference-server/tensorrtllm_backend, docs/model_config.md.
    https://github.com/triton-inference-server/vllm_backend, src/model.py and src/utils/request.py.
    """

    inputs: frozenset[str]
    required: frozenset[str]
    is_vllm: bool
    accumulates: bool
    keeps_prompts: bool
    adds_special: bool

    def request(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        """Return the body of a generate request that streams at most ``max_tokens`` tokens."""
        optional = {"exclude_input_in_output": True, **TRITON_SAMPLING}
        if not self.is_vllm:
            optional = {key: value for key, value in optional.items() if key in self.inputs}
        empty = {name: "" for name in EMPTY_WORDS if name in self.required}
        return {"text_input": prompt, "max_tokens": max_tokens, "stream": True, **optional, **empty}


def parts_of(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the models behind a model: the steps of an ensemble, or those of a BLS model."""
    steps = (config.get("ensemble_scheduling") or {}).get("step") or ()
    names = [str(step["model_name"]) for step in steps if isinstance(step, dict) and "model_name" in step]
    if "accumulate_tokens" in (config.get("parameters") or {}):
        names += ["preprocessing", parameter([config], "tensorrt_llm_model_name") or "tensorrt_llm"]
    return names


def parameter(configs: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return a parameter of the first configuration that has it, "" for none.

    Parameters that were not filled in are left as ``${name}`` (tools/fill_template.py).
    """
    for config in configs:
        value = ((config.get("parameters") or {}).get(name) or {}).get("string_value", "")
        if value and not value.startswith("${"):
            return str(value)
    return ""


def read_model(config: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> TritonModel:
    """Return what the configurations of a model and of its parts tell.

    They are ``ModelConfig`` messages as JSON (Triton's model configuration extension). Raises ValueError with
    what to change if the model cannot stream text.
    """
    configs = [config, *parts]
    given = [entry for entry in config.get("input") or () if isinstance(entry, dict)]
    inputs = frozenset(str(entry.get("name")) for entry in given)
    if "text_input" not in inputs:
        raise ValueError("the model takes no text: name the ensemble, tensorrt_llm_bls, or a model of vLLM")
    if not any((one.get("model_transaction_policy") or {}).get("decoupled") for one in configs):
        raise ValueError("the model does not stream: set decoupled_mode to true in its config.pbtxt")
    is_vllm = "vllm" in {one.get("backend") for one in configs}
    begins = parameter(configs, "add_special_tokens").lower()
    return TritonModel(
        inputs,
        frozenset(str(entry.get("name")) for entry in given if not entry.get("optional")),
        is_vllm,
        accumulates=parameter([config], "accumulate_tokens").lower() in TRUE,
        # vLLM's engine keeps prompts unless its model.json says otherwise.
        keeps_prompts=is_vllm or parameter(configs, "enable_kv_cache_reuse").lower() in TRUE,
        adds_special=not begins or begins in TRUE,
    )


class TextPieces:
    """Turns the ``text_output`` of responses into new text.

    accumulates: each one has the whole text so far. Its last character may still change then, if its bytes
        are not complete.
    """

    def __init__(self, accumulates: bool) -> None:
        self._accumulates = accumulates
        self._length = 0

    def take(self, text: str) -> str:
        """Return the text that is new, "" for none."""
        if not self._accumulates:
            return text
        certain = text.rstrip(REPLACEMENT)
        piece, self._length = certain[self._length :], max(self._length, len(certain))
        return piece
