"""The settings of vLLM: the table ``[vllm]`` of the configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

LoadFormat = Literal["auto", "safetensors", "pt", "mistral", "sharded_state", "runai_streamer", "dummy"]
"""Checked here because vLLM reports another value only in its log, after its workers have started."""


class VllmSettings(BaseModel):
    """Settings that are passed to vLLM unchanged, under vLLM's own names. Unset ones take vLLM's default.

    Sizes are in tokens, unless their name says bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: str | None = Field(default=None, description="auto, bfloat16, float16 or float32")
    load_format: LoadFormat | None = Field(
        default=None, description="how weights are read; dummy: made up, where only the speed is measured"
    )
    quantization: str | None = Field(default=None, description="fp8, awq, gptq; unset: what the model says")
    enforce_eager: bool | None = Field(default=None, description="compile nothing: starts sooner, is slower")
    max_model_len: int | None = Field(default=None, ge=64, description="longest prompt and answer together")
    max_num_seqs: int | None = Field(default=None, ge=1, description="answers at a time; one more waits")
    max_num_batched_tokens: int | None = Field(default=None, ge=1, description="tokens of one step")
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0.0, le=1.0, description="share of the GPU's memory that vLLM may fill"
    )
    kv_cache_memory_bytes: int | None = Field(
        default=None, ge=1 << 20, description="memory of the cache, instead of what that share leaves"
    )
    block_size: int | None = Field(
        default=None, ge=1, description="tokens that are cached and freed together"
    )
    enable_prefix_caching: bool | None = Field(
        default=None, description="read what prompts begin with only once"
    )
    enable_chunked_prefill: bool | None = Field(
        default=None, description="read long prompts between others' steps"
    )
    tensor_parallel_size: int | None = Field(default=None, ge=1, description="GPUs that share one model")
    speculative_config: dict[str, Any] | None = Field(
        default=None, description="guessed tokens: an n-gram or a draft model, as vLLM describes it"
    )

    tool_call_parser: str | None = Field(
        default=None, description="what reads calls of tools; unset: hermes where the model writes like that"
    )

    @field_validator("speculative_config")
    @classmethod
    def _check_speculative_config(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Refuse values that vLLM would misread, or refuse only after minutes of loading."""
        if given is None:
            return None
        if not given.get("method") and not given.get("model"):
            raise ValueError('write a method, such as {method = "ngram"}, or the model that drafts')
        count = given.get("num_speculative_tokens")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError("write how many tokens are guessed at once: num_speculative_tokens = 3")
        return given

    def given(self) -> dict[str, Any]:
        """Return all settings that are set, by vLLM's names."""
        return self.model_dump(exclude_none=True)

    def engine(self) -> dict[str, Any]:
        """Return the settings that are set and are passed to the engine, by vLLM's names."""
        return self.model_dump(exclude_none=True, exclude={"tool_call_parser"})
