"""The settings of one language model: a table ``[models.NAME]`` of the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from rejoinder.pipeline.errors import ModelError

Prefill = Literal["no", "last", "vllm", "prefix"]
"""How a server is asked to go on with an assistant message at the end of a prompt. See ``PREFILL_FIELDS``."""
MAX_KEY_BYTES = 10_000
"""Largest file with a key."""
SERVER_FIELDS = (
    "key_file", "key_env", "headers", "temperature", "top_p", "seed", "stop", "extra", "prefill", "thinks",
    "can_warm", "between_tokens_s", "tool_call_s", "cached_price", "context",
)  # fmt: skip
"""Settings that only a model behind an address has."""


class ModelSettings(BaseModel):
    """The settings of one language model. A spec, or an address and the server's name of the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: str = Field("", description="a spec as in `llm`, in place of `url` and `model`")
    url: str = Field(
        "", pattern=r"^(https?://\S+)?$", description="base address of a chat server, up to and with `/v1`"
    )
    model: str = Field("", description="the server's name of the model")
    key_file: str = Field("", description="file that holds the key; blanks around it are ignored")
    key_env: str = Field("", pattern=r"^\w*$", description="environment variable that holds the key")
    headers: dict[str, SecretStr] = Field({}, description="further headers of each request")
    temperature: float | None = Field(
        None, ge=0.0, le=2.0, description="randomness of the words; unset: the server's"
    )
    top_p: float | None = Field(
        None, gt=0.0, le=1.0, description="share of the likeliest tokens to choose from; unset: the server's"
    )
    seed: int | None = Field(None, description="makes answers repeatable, where the server can")
    stop: list[str] = Field([], max_length=4, description="texts that end an answer, at most four")
    extra: dict[str, Any] = Field({}, description="further fields of each request, such as reasoning_effort")
    prefill: Prefill = Field(
        "no", description="how the server continues a begun answer: no, last, vllm or prefix"
    )
    thinks: bool = Field(
        False, description="answers begin inside a thought, because the chat template opens it"
    )
    can_warm: bool = Field(
        False, description="fill the server's prefix cache by a request for 0 tokens while the caller speaks"
    )
    first_token_s: float | None = Field(
        None, gt=0.0, le=120.0, description="deadline of the first word, in seconds; unset: from measurements"
    )
    between_tokens_s: float | None = Field(
        None, gt=0.0, le=120.0, description="longest wait between two tokens, in seconds; unset: 4"
    )
    first_clause_s: float | None = Field(
        None,
        gt=0.0,
        le=120.0,
        description="deadline of the first clause after the first word, in seconds; unset: from measurements",
    )
    tool_call_s: float | None = Field(
        None, gt=0.0, le=600.0, description="longest time for writing tool calls, in seconds; unset: 10"
    )
    context: int | None = Field(
        None, ge=512, le=10_000_000, description="most tokens of a prompt and its answer; unset: 8192"
    )
    input_price: float = Field(0.0, ge=0.0, description="price of a million tokens of prompts")
    cached_price: float | None = Field(
        None, ge=0.0, description="price of a million cached tokens of prompts; unset: `input_price`"
    )
    output_price: float = Field(0.0, ge=0.0, description="price of a million tokens of answers")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.spec and (self.url or self.model):
            raise ValueError("spec stands in place of url and model: remove one of them")
        if not self.spec and not (self.url and self.model):
            raise ValueError("it needs a url and a model, or a spec")
        if self.key_file and self.key_env:
            raise ValueError("the key is in key_file or in key_env: remove one of them")
        if not self.remote and (given := [one for one in SERVER_FIELDS if one in self.model_fields_set]):
            raise ValueError(f"{', '.join(given)}: only a model with a url has that, not {self.adapter}")
        return self

    @property
    def adapter(self) -> str:
        """The name of the adapter."""
        return self.spec.partition(":")[0] if self.spec else "openai"

    @property
    def remote(self) -> bool:
        """Whether the model is behind an address."""
        return self.adapter == "openai"

    @property
    def full_spec(self) -> str:
        """The spec of the model."""
        return self.spec or f"openai:{self.url}#{self.model}"

    def key(self, name: str) -> str:
        """Return the key, "" where none is configured. name: of the table, for the error.

        Raises ModelError if the file or the variable cannot be read or is empty; the text never has the key.
        """
        place = f"key_file {self.key_file}" if self.key_file else f"the variable {self.key_env} of key_env"
        if not (self.key_file or self.key_env):
            return ""
        try:
            key = os.environ.get(self.key_env, "") if self.key_env else _read(self.key_file)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", "") or "it is not text"
            raise ModelError(name, f"cannot read {place}: {reason}") from None
        key = key.strip()
        if not key:
            raise ModelError(name, f"{place} is empty: put the key there")
        if not key.isascii() or not key.isprintable():
            raise ModelError(name, f"{place} holds no key: it has line breaks or letters that no key has")
        return key

    def fields(self) -> dict[str, Any]:
        """Return the further fields of each request."""
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "seed", "stop")}
        return {name: value for name, value in given.items() if value not in (None, [])} | self.extra


def _read(path: str) -> str:
    with Path(path).expanduser().open("rb") as file:
        return file.read(MAX_KEY_BYTES).decode()
