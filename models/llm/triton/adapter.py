"""A client of Triton Inference Server's ``generate_stream``, for language models in TensorRT-LLM or vLLM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rejoinder.models.hints import require
from rejoinder.models.llm.bounded import bound
from rejoinder.models.llm.openai import (
    CONNECT_SECONDS,
    EMPTY_CHUNKS,
    FIRST_TOKEN_SECONDS,
    MAX_REASON_CHARS,
    NO_KEY,
    REQUESTED_TOKENS,
    is_loopback,
    without_secrets,
)
from rejoinder.models.llm.quoted_requests import text_of
from rejoinder.models.llm.trace_context import carry
from rejoinder.models.llm.triton.model import TextPieces, TritonModel, parts_of, read_model
from rejoinder.models.llm.triton.prompt import PromptText
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message


class TritonLlm:
    """A language model in Triton, without tools: the generate extension has none.

    url: the server's URL, up to its port or path prefix, without ``/v2``.
    template: a tokenizer's folder, or the ``chat_template.jinja`` in it (``PromptText``).
    key: sent as a bearer token, for a gateway in front.
    can_warm: whether requests may be sent that only fill the prefix cache. None: if the model's configuration
        says that there is one, and the URL is plain HTTP.
    token_seconds: longest wait for the first response and between two of them.

    https://github.com/triton-inference-server/server, docs/protocol/extension_generate.md.
    """

    def __init__(
        self,
        url: str,
        model: str,
        template: Path,
        key: str = NO_KEY,
        can_warm: bool | None = None,
        token_seconds: float = FIRST_TOKEN_SECONDS,
    ) -> None:
        require("triton")
        import httpx2

        self.name = f"triton:{without_secrets(url)}#{model}"
        self._key = key
        self._prompts = PromptText(self.name, template)
        self._models = f"{url.rstrip('/').removesuffix('/v2')}/v2/models"
        self._path = f"{self._models}/{quote(model, safe='')}"
        self._can_warm = can_warm if can_warm is not None else not url.startswith("https:")
        self._requires_cache = can_warm is None
        self._token_seconds = token_seconds
        self._model: TritonModel | None = None
        headers = {"Accept-Encoding": "identity"}
        if key != NO_KEY:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(token_seconds, connect=CONNECT_SECONDS),
            trust_env=not is_loopback(url),
            event_hooks={"request": [carry], "response": [bound]},
        )

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer. Closing the generator closes the connection, which cancels the request.

        Raises ModelError if the server is down, refuses the request, sends nothing for ``token_seconds``,
        fails in the middle of the answer, or exceeds the token limit.
        """
        async with aclosing(self._generate(messages, REQUESTED_TOKENS)) as pieces:
            async for piece in pieces:
                yield piece

    async def warm(self, messages: Sequence[Message]) -> None:
        """Fill the model's prefix cache by an answer of one token, if ``can_warm`` allows it.

        Cancelling closes the request. Raises ModelError.
        """
        if not self._can_warm:
            return
        if self._requires_cache and not (await self._configured()).keeps_prompts:
            return
        async with aclosing(self._generate(messages, 1)) as pieces:
            async for _ in pieces:
                pass

    async def aclose(self) -> None:
        """Close the connections. Cancelling may leave some open."""
        await self._client.aclose()

    async def _generate(self, messages: Sequence[Message], max_tokens: int) -> AsyncGenerator[str, None]:
        model = await self._configured()
        pieces = TextPieces(model.accumulates)
        body = model.request(self._prompts.text(messages, model.adds_special), max_tokens)
        left = max_tokens + EMPTY_CHUNKS
        started = False
        try:
            async with aclosing(self._responses(body)) as responses:
                while True:
                    async with asyncio.timeout(self._token_seconds):
                        response = await anext(responses, None)
                    if response is None:
                        return
                    started = True
                    left -= 1
                    if left < 0:
                        raise ModelError(self.name, f"it sent more than {max_tokens} tokens")
                    if piece := pieces.take(_text(response)):
                        yield piece
        except TimeoutError as error:
            raise ModelError(self.name, f"no token for {self._token_seconds:g} s", "model_timeout") from error
        except ModelError:
            raise
        except Exception as error:
            self._model = None  # the server may come back with another configuration
            broke_off = "the answer broke off: " if started else ""
            raise ModelError(self.name, broke_off + self._reason(error)) from error

    async def _responses(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the responses to a request. Raises RuntimeError with the server's error, or HTTP errors."""
        async with self._client.stream("POST", f"{self._path}/generate_stream", json=body) as response:
            if response.status_code != 200:
                await response.aread()
                raise RuntimeError(_refusal(response))
            async for line in response.aiter_lines():
                if not line.startswith("data:"):  # a blank line, or a comment
                    continue
                answer = json.loads(line.removeprefix("data:"))
                if not isinstance(answer, dict) or "error" in answer:
                    raise RuntimeError(str(answer["error"] if isinstance(answer, dict) else answer))
                yield answer

    async def _configured(self) -> TritonModel:
        """Return what the model's configuration tells; it is read once. Raises ModelError."""
        if self._model is None:
            try:
                async with asyncio.timeout(self._token_seconds):
                    config = await self._config(self._path)
                    parts = [
                        await self._config(f"{self._models}/{quote(name, safe='')}")
                        for name in parts_of(config)
                    ]
                self._model = read_model(config, parts)
            except TimeoutError as error:
                reason = f"no configuration for {self._token_seconds:g} s"
                raise ModelError(self.name, reason, "model_timeout") from error
            except Exception as error:
                raise ModelError(self.name, self._reason(error)) from error
        return self._model

    async def _config(self, path: str) -> dict[str, Any]:
        response = await self._client.get(f"{path}/config")
        if response.status_code != 200:
            raise RuntimeError(_refusal(response))
        config = response.json()
        if not isinstance(config, dict):
            raise ValueError(f"{path}/config is no configuration of a model")
        return config

    def _reason(self, error: Exception) -> str:
        text = " ".join((text_of(error).rstrip(".") or type(error).__name__).split())
        if self._key != NO_KEY:  # a server may quote the key, and clients receive the reason
            text = text.replace(self._key, "(the key)")
        return text[:MAX_REASON_CHARS]


def _text(response: dict[str, Any]) -> str:
    """Return the text of a response; with several beams, that of the first one."""
    text = response.get("text_output", "")
    text = text[0] if isinstance(text, list) and text else text
    if not isinstance(text, str):
        raise ValueError("the response has no text_output")
    return text


def _refusal(response: Any) -> str:
    """Return the status of a response that is no success, with the error in its body if that is JSON."""
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        return f"Error code: {response.status_code}"
    return f"Error code: {response.status_code} - {error}"
