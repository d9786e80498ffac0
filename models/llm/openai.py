"""A client of any OpenAI-compatible chat server: vLLM, TGI, TensorRT-LLM, Ollama, llama-server, or hosted."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit

from rejoinder.models.hints import require
from rejoinder.models.llm.bounded import bound
from rejoinder.models.llm.tool_calls import ToolCalls
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, ToolCall, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_THOUGHT_TOKENS, MAX_TOKENS

CONNECT_SECONDS = 3.0
"""Longest wait for a connection."""
TOKEN_SECONDS = 15.0
"""Longest wait for the first token and between two tokens."""
STREAM_END_SECONDS = 0.25
"""Longest wait for the end of the stream after the last token. A stream read to its end leaves the connection
reusable."""
REQUESTED_TOKENS = MAX_TOKENS + MAX_THOUGHT_TOKENS
"""Token limit sent to the server, which also counts reasoning tokens. ``AnswerFilter`` may end a reply
earlier; tokens beyond the limit are not read."""
EMPTY_CHUNKS = 100
"""Most chunks without a token: with a role, with a finish reason, or to keep the connection open."""
NEW_LIMIT = "max_completion_tokens"
"""The name of the token limit that OpenAI's reasoning models require."""
KEY_VARIABLES = ("REJOINDER_LLM_KEY", "OPENAI_API_KEY")
"""Environment variables for the key; the first one that is set counts."""
NO_KEY = "none"
"""Sent as the key if none is configured."""
CLOSED = ("RemoteProtocolError", "ReadError", "WriteError")
"""Errors of the HTTP library that openai brings, if the server closes a connection before it answers."""
REASON_CHARACTERS = 300
"""Most characters of a server's error message: a failing server may answer with a whole web page."""


class OpenAiChat:
    """A chat model behind HTTP.

    url: the base URL, up to and including ``/v1``.
    key: sent as a bearer token; servers that need no key ignore it.
    can_warm: whether a request for 0 tokens fills the server's prefix cache at no cost.
    token_seconds: longest wait for the first token and between two tokens.
    extra: further fields of each request, such as sampling parameters.
    name: name of the model in errors.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = NO_KEY,
        can_warm: bool = False,
        token_seconds: float = TOKEN_SECONDS,
        extra: dict[str, Any] | None = None,
        name: str = "",
    ) -> None:
        require("openai")
        import openai

        self.name = name or f"openai:{without_secrets(url)}#{model}"
        self._key = key
        # No retries: they would hide a dead server for seconds. In a conversation the next turn is the retry.
        timeout = openai.Timeout(token_seconds, connect=CONNECT_SECONDS)
        # Loopback must not go through a proxy, even if the environment names one for all requests.
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key,
            timeout=timeout,
            max_retries=0,
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=not is_loopback(url), timeout=timeout, event_hooks={"response": [bound]}
            ),
        )
        self._model = model
        self._can_warm = can_warm
        self._token_seconds = token_seconds
        self._extra = extra or {}
        self._limit = "max_tokens"

    async def reply(
        self, messages: Sequence[Message], extra: dict[str, Any] | None = None
    ) -> AsyncGenerator[str, None]:
        """Stream the answer. Closing the generator closes the connection, which stops the server's work.

        extra: further fields of this request.

        Raises ModelError if the server is down, refuses the request, sends nothing for ``token_seconds``,
        ends the stream before the answer ends, or exceeds the token limit.
        """
        async with aclosing(self._stream(messages, extra)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece

    def answer(
        self, messages: Sequence[Message], tools: Tools, extra: dict[str, Any] | None = None
    ) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, then the tool calls. Otherwise like ``reply``.

        Raises ModelError also if a call is incomplete or its arguments are not a JSON object.
        """
        fields: dict[str, Any] = {"tools": list(tools.functions), "tool_choice": tools.choice}
        if not tools.parallel:  # sent only if needed: some servers do not know the field
            fields["parallel_tool_calls"] = False
        return self._stream(messages, {**(extra or {}), **fields})

    async def _stream(
        self, messages: Sequence[Message], extra: dict[str, Any] | None
    ) -> AsyncGenerator[str | ToolCall, None]:
        started = finished = False
        left = REQUESTED_TOKENS + EMPTY_CHUNKS
        calls = ToolCalls(self.name)
        try:
            async with asyncio.timeout(self._token_seconds):
                stream = await self._create(messages, REQUESTED_TOKENS, True, extra)
            started = True
            async with stream:
                chunks = aiter(stream)
                while True:
                    async with asyncio.timeout(STREAM_END_SECONDS if finished else self._token_seconds):
                        chunk = await anext(chunks, None)
                    left -= 1
                    if left < 0 and not finished:
                        raise ModelError(self.name, f"it sent more than {REQUESTED_TOKENS} tokens")
                    if left < 0 or chunk is None:
                        break
                    for choice in chunk.choices:
                        finished = finished or choice.finish_reason is not None
                        calls.add(choice.delta.tool_calls or [], choice.finish_reason)
                        if choice.delta.content:
                            yield choice.delta.content
        except TimeoutError as error:
            if not finished:
                raise ModelError(
                    self.name, f"no token for {self._token_seconds:g} s", "model_timeout"
                ) from error
        except ModelError:
            raise
        except Exception as error:  # the HTTP library's own errors surface while a stream is being read
            if not finished:  # after the finish reason the answer is complete, and the error does not matter
                broke_off = "the answer broke off: " if started else ""
                raise ModelError(self.name, broke_off + self._reason(error)) from error
        if not finished:
            raise ModelError(self.name, "the answer broke off before its end")
        for call in calls.whole():
            yield call

    async def warm(self, messages: Sequence[Message], extra: dict[str, Any] | None = None) -> None:
        """Prefill the prompt if ``can_warm`` is set. Cancelling closes the request. Raises ModelError."""
        if self._can_warm:
            try:
                await self._create(messages, 0, False, extra)
            except Exception as error:
                raise ModelError(self.name, self._reason(error)) from error

    async def aclose(self) -> None:
        """Close the connections. Cancelling may leave some open."""
        await self._client.close()

    async def _create(
        self, messages: Sequence[Message], max_tokens: int, stream: bool, extra: dict[str, Any] | None
    ) -> Any:
        import openai

        body = {**self._extra, **(extra or {})}
        again = False
        while True:
            limit = self._limit
            try:
                return await self._client.chat.completions.create(
                    model=self._model,
                    messages=cast(Any, list(messages)),
                    stream=stream,
                    extra_body={limit: max_tokens, **body},
                )
            except openai.APIConnectionError as error:
                # A server may close a kept connection while a request is on its way. A new connection shows
                # whether the server is there.
                if again or type(error.__cause__).__name__ not in CLOSED:
                    raise
                again = True
            except openai.BadRequestError as error:
                # OpenAI's reasoning models refuse max_tokens, the name that all other servers know.
                if limit == NEW_LIMIT or NEW_LIMIT not in str(error):
                    raise
                self._limit = NEW_LIMIT

    def _reason(self, error: Exception) -> str:
        causes = [error, error.__cause__] if error.__cause__ is not None else [error]
        text = " ".join(": ".join(str(cause).rstrip(".") or type(cause).__name__ for cause in causes).split())
        if self._key != NO_KEY:  # a server may quote the key, and clients receive the reason
            text = text.replace(self._key, "(the key)")
        return text[:REASON_CHARACTERS]


def without_secrets(url: str) -> str:
    """Return a URL without credentials, query and fragment, which may contain a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, even one such as "127.example.org"
        return False


def key_variable() -> str:
    """Return the name of the environment variable that holds the chat server's key, or ""."""
    return next((name for name in KEY_VARIABLES if os.environ.get(name)), "")


def key_from_environment() -> str:
    """Return the chat server's key from REJOINDER_LLM_KEY or OPENAI_API_KEY, or ``NO_KEY``."""
    return os.environ.get(key_variable()) or NO_KEY
