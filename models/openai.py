"""Any OpenAI-compatible chat server: vLLM, TGI, TensorRT-LLM, Ollama, llama-server, or a hosted one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message

CONNECT_SECONDS = 3.0
TOKEN_SECONDS = 15.0
"""Longest wait for the first token and between two tokens."""
MAX_TOKENS = 400
"""An answer longer than this is not a spoken one."""


class OpenAiChat:
    """A chat model behind HTTP.

    url: up to and including ``/v1``. key: sent as a bearer token; servers without one ignore it.
    can_warm: whether asking for no tokens fills the server's prefix cache, and costs nothing.
    extra: further fields of each request, such as sampling parameters.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "none",
        can_warm: bool = False,
        token_seconds: float = TOKEN_SECONDS,
        extra: dict[str, Any] | None = None,
    ) -> None:
        import openai

        self.name = f"openai:{url}#{model}"
        self._errors: type[Exception] = openai.OpenAIError
        # Retries would hide a dead server for seconds: in a conversation the next turn is the retry.
        timeout = openai.Timeout(token_seconds, connect=CONNECT_SECONDS)
        self._client = openai.AsyncOpenAI(base_url=url, api_key=key, timeout=timeout, max_retries=0)
        self._model = model
        self._can_warm = can_warm
        self._token_seconds = token_seconds
        self._extra = extra or {}

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer; closing the generator closes the connection, which stops the server's work.

        Raises ModelError where the server is down, refuses, falls silent, or breaks off in mid-sentence.
        """
        finished = False
        try:
            stream = await self._create(messages, MAX_TOKENS, stream=True)
            async with stream:
                chunks = aiter(stream)
                while True:
                    async with asyncio.timeout(self._token_seconds):
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        break
                    for choice in chunk.choices:
                        finished = finished or choice.finish_reason is not None
                        if choice.delta.content:
                            yield choice.delta.content
        except TimeoutError as error:
            raise ModelError(self.name, f"no token for {self._token_seconds:g} s") from error
        except self._errors as error:
            raise ModelError(self.name, _reason(error)) from error
        except Exception as error:  # the HTTP library's own errors surface while a stream is being read
            raise ModelError(self.name, f"the answer broke off: {_reason(error)}") from error
        if not finished:
            raise ModelError(self.name, "the answer broke off before its end")

    async def warm(self, messages: Sequence[Message]) -> None:
        """Prefill the prompt where the server can do that for nothing."""
        if self._can_warm:
            await self._create(messages, 0, stream=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _create(self, messages: Sequence[Message], max_tokens: int, stream: bool) -> Any:
        prompt: Any = list(messages)
        return await self._client.chat.completions.create(
            model=self._model, messages=prompt, max_tokens=max_tokens, stream=stream, extra_body=self._extra
        )


def key_from_environment() -> str:
    """Return the chat server's key from REJOINDER_LLM_KEY or OPENAI_API_KEY; not every server wants one."""
    return os.environ.get("REJOINDER_LLM_KEY") or os.environ.get("OPENAI_API_KEY") or "none"


def _reason(error: Exception) -> str:
    causes = [str(error)]
    if error.__cause__ is not None and str(error.__cause__):
        causes.append(str(error.__cause__))
    return ": ".join(causes) or type(error).__name__
