"""The settings of vLLM: the table ``[vllm]`` of the configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rejoinder.models.llm.vllm.speculation import check_speculative_config

LoadFormat = Literal["auto", "safetensors", "pt", "mistral", "sharded_state", "runai_streamer", "dummy"]
"""Checked here because vLLM reports another value only in its log, after its workers have started."""


class VllmSettings(BaseModel):
    """Settings that are passed to vLLM unchanged, under vLLM's own names. Unset ones take vLLM's default.

    Sizes are in tokens, unless their name says bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: str | None = Field(default=None, description="auto, bfloat16, float16 or float32")
    load_format: LoadFormat | None = Field(
        default=None, description="format of the weights; dummy: random weights, to measure speed only"
    )
    quantization: str | None = Field(
        default=None, description="fp8, awq or gptq; unset: as the model's configuration says"
    )
    enforce_eager: bool | None = Field(
        default=None, description="do not compile the model: it starts sooner and runs slower"
    )
    max_model_len: int | None = Field(
        default=None, ge=64, description="most tokens of a prompt and its answer together"
    )
    max_num_seqs: int | None = Field(
        default=None, ge=1, description="most answers at a time; further ones wait"
    )
    max_num_batched_tokens: int | None = Field(default=None, ge=1, description="most tokens in one step")
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0.0, le=1.0, description="share of the GPU's memory that vLLM may fill"
    )
    kv_cache_memory_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="memory of the KV cache, in bytes; overrides gpu_memory_utilization",
    )
    block_size: int | None = Field(default=None, ge=1, description="tokens in one block of the KV cache")
    enable_prefix_caching: bool | None = Field(
        default=None, description="reuse the cached beginning of earlier prompts"
    )
    enable_chunked_prefill: bool | None = Field(
        default=None, description="split long prompts over several steps"
    )
    tensor_parallel_size: int | None = Field(default=None, ge=1, description="GPUs that share one model")
    speculative_config: dict[str, Any] | None = Field(
        default=None, description="speculative decoding by n-grams or a draft model, in vLLM's format"
    )

    tool_call_parser: str | None = Field(
        default=None, description="vLLM's parser of tool calls; unset: hermes, if the template has its format"
    )

    @field_validator("speculative_config")
    @classmethod
    def _check_speculative_config(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Refuse values that vLLM would misread, or refuse only after minutes of loading."""
        return None if given is None else check_speculative_config(given)

    def given(self) -> dict[str, Any]:
        """Return all settings that are set, by vLLM's names."""
        return self.model_dump(exclude_none=True)

    def engine(self) -> dict[str, Any]:
        """Return the settings that are set and are passed to the engine, by vLLM's names."""
        return self.model_dump(exclude_none=True, exclude={"tool_call_parser"})
