"""A client of any OpenAI-compatible chat server: vLLM, TGI, TensorRT-LLM, Ollama, llama-server, or hosted."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from rejoinder.models.adapter import Adapter
from rejoinder.models.llm.addresses import is_loopback, server_address, without_secrets
from rejoinder.models.llm.bounded import bound
from rejoinder.models.llm.stream_deadlines import StreamDeadlines
from rejoinder.models.llm.tool_calls import ToolCalls
from rejoinder.models.llm.trace_context import carry
from rejoinder.pipeline.context.tokens import CONTEXT_TOKENS, ENTRY_TOKENS, estimated
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, ToolCall, Tools, Usage
from rejoinder.pipeline.replying.text.answer_filter import MAX_THOUGHT_TOKENS, MAX_TOKENS
from rejoinder.pipeline.upstream import Upstream, upstream

CONNECT_SECONDS = 3.0
"""Longest wait for a connection."""
FIRST_TOKEN_SECONDS = 8.0
"""Longest wait for the first token, thoughts included. Beyond it a caller hears an apology."""
BETWEEN_TOKENS_SECONDS = 4.0
"""Longest wait between two tokens: in a call this is a long silence in the middle of a sentence."""
WARM_SECONDS = 1.5
"""Longest wait for a request that fills the server's cache: a reply waits for it, before its own deadline
begins."""
TOOL_CALL_SECONDS = 10.0
"""Longest time from the first piece of a tool call to the end of the answer."""
REQUESTED_TOKENS = MAX_TOKENS + MAX_THOUGHT_TOKENS
"""Token limit sent to the server, which also counts reasoning tokens. ``AnswerFilter`` may end a reply
earlier; tokens beyond the limit are not read."""
EMPTY_CHUNKS = 100
"""Most chunks without a token: with a role, with a finish reason, or to keep the connection open."""
NEW_LIMIT = "max_completion_tokens"
"""The name of the token limit that OpenAI's reasoning models require."""
CHUNK_SIGNS = ("content", "tool_calls", "reasoning_content", "reasoning")
"""Fields of a chunk that show that the model works. Only ``content`` holds words for the user; the others of
vLLM, SGLang, llama-server and DeepSeek hold thoughts."""
OPEN_THOUGHT = "<think>"
"""Opens a thought that a chat template has opened in the prompt already."""
ASKS_USAGE = {"stream_options": {"include_usage": True}}
"""Asks for one more chunk, with the usage, at the end of a stream. vLLM, llama-server, SGLang, TGI and Ollama
from 0.5.2 know the field (ollama/ollama #4448)."""
OPTIONAL_FIELDS = ("parallel_tool_calls", "stream_options")
"""Fields that a request can do without. Some servers refuse unknown ones (openai-agents-python #442): those
are left out from then on."""
PREFILL_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no": ({}, {}),
    "last": ({}, {}),
    "vllm": ({"add_generation_prompt": False, "continue_final_message": True}, {}),
    "prefix": ({}, {"prefix": True}),
}
"""Fields of the request, and of its last message, that continue an assistant message at the end of a prompt.

last: the server does so by itself (llama-server, ggml-org/llama.cpp #13174; Ollama). vllm: vLLM and SGLang.
prefix: Mistral and DeepSeek (docs.litellm.ai/docs/completion/prefix).
"""
KEY_VARIABLES = ("REJOINDER_LLM_KEY", "OPENAI_API_KEY")
"""Environment variables for the key; the first one that is set counts."""
NO_KEY = "none"
"""Sent as the key if none is configured."""
CLOSED = ("RemoteProtocolError", "ReadError", "WriteError")
"""Errors of the HTTP library that openai brings, if the server closes a connection before it answers."""
REASON_CHARACTERS = 300
"""Most characters of a server's error message: a failing server may answer with a whole web page."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a table of the configuration may set for one server.

    first_s, between_s: longest wait for the first token and between two tokens, thoughts included. headers:
    further headers of each request. prefill: a key of ``PREFILL_FIELDS``. thinks: whether answers begin
    inside a thought. input_price, output_price: of a million tokens. warm_s: longest wait for a request that
    fills the cache. call_s: longest time for writing tool calls in a reply that is spoken. cached_price: of a
    million tokens that the server had cached; None for ``input_price``. spend: takes what a request has cost,
    in the unit of the prices. context: most tokens of a prompt and its answer together.
    """

    first_s: float = FIRST_TOKEN_SECONDS
    between_s: float = BETWEEN_TOKENS_SECONDS
    headers: Mapping[str, str] = field(default_factory=dict)
    prefill: str = "no"
    thinks: bool = False
    input_price: float = 0.0
    output_price: float = 0.0
    warm_s: float = WARM_SECONDS
    call_s: float = TOOL_CALL_SECONDS
    cached_price: float | None = None
    spend: Callable[[float], None] | None = None
    context: int = CONTEXT_TOKENS


class OpenAiChat:
    """A chat model behind HTTP.

    url: the base URL, up to and including ``/v1``.
    key: sent as a bearer token; servers that need no key ignore it.
    can_warm: whether a request for 0 tokens fills the server's prefix cache at no cost.
    extra: further fields of each request, such as sampling parameters.
    name: name of the model in errors. options: what a table of the configuration may set.
    context_tokens: most tokens of a prompt and its answer together.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = NO_KEY,
        can_warm: bool = False,
        extra: dict[str, Any] | None = None,
        name: str = "",
        options: ChatOptions | None = None,
    ) -> None:
        ADAPTER.require()
        self.name = name or f"openai:{without_secrets(url)}#{model}"
        self._key = key
        self._options = options = options or ChatOptions()
        self.context_tokens = options.context
        seconds = max(options.first_s, options.between_s)
        self._client = connected(url, key, seconds, options.headers, [carry])
        self._model = model
        self._can_warm = can_warm
        self._extra = extra or {}
        self._limit = "max_tokens"
        self._refused: set[str] = set()

    @property
    def prefills(self) -> bool:
        """Whether the server continues an assistant message at the end of the prompt."""
        return self._options.prefill != "no"

    async def reply(
        self, messages: Sequence[Message], extra: dict[str, Any] | None = None
    ) -> AsyncGenerator[str, None]:
        """Stream the answer. Closing the generator closes the connection, which stops the server's work.

        extra: further fields of this request.

        Raises ModelError if the server is down, refuses the request, sends nothing for too long (see
        ``ChatOptions``), ends the stream before the answer ends, or exceeds the token limit.
        """
        async with aclosing(self._stream(messages, extra)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece

    def answer(
        self, messages: Sequence[Message], tools: Tools, extra: dict[str, Any] | None = None
    ) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, then the tool calls. Otherwise like ``reply``.

        The first piece of a tool call yields an empty text, as a sign that the model has answered. Raises
        ModelError also if a call is incomplete.
        """
        fields: dict[str, Any] = {"tools": list(tools.functions), "tool_choice": tools.choice}
        if not tools.parallel:  # sent only if needed: some servers do not know the field
            fields["parallel_tool_calls"] = False
        return self._stream(messages, {**(extra or {}), **fields})

    async def _stream(
        self, messages: Sequence[Message], extra: dict[str, Any] | None
    ) -> AsyncGenerator[str | ToolCall, None]:
        opened = called = False
        pieces = 0
        options, loop = self._options, asyncio.get_running_loop()
        reply, usage = upstream.get(), None
        call_s = options.call_s if reply is not None and reply.spoken else math.inf
        waits = StreamDeadlines(options.first_s, options.between_s, call_s, loop.time())
        left = REQUESTED_TOKENS + EMPTY_CHUNKS
        calls = ToolCalls(self.name)
        try:
            async with asyncio.timeout_at(waits.due(loop.time())):
                stream = await self._create(messages, REQUESTED_TOKENS, True, extra)
            opened = True
            if options.thinks:
                yield OPEN_THOUGHT
            async with stream:
                chunks = aiter(stream)
                while True:
                    async with asyncio.timeout_at(waits.due(loop.time())):
                        chunk = await anext(chunks, None)
                    left -= 1
                    if left < 0 and not waits.finished:
                        raise ModelError(self.name, f"it sent more than {REQUESTED_TOKENS} tokens")
                    if left < 0 or chunk is None:
                        break
                    usage = chunk.usage or usage  # some servers send it with each chunk
                    for choice in chunk.choices:
                        delta, finish = choice.delta, choice.finish_reason
                        calls.add(delta.tool_calls or [], finish)
                        works = any(getattr(delta, name, None) for name in CHUNK_SIGNS)
                        waits.chunk(works, bool(delta.tool_calls), finish is not None, loop.time())
                        if delta.tool_calls and not called:
                            called = True
                            yield ""
                        if delta.content:
                            pieces += 1
                            yield delta.content
        except TimeoutError as error:
            if not waits.finished:
                raise waits.error(self.name) from error
        except ModelError:
            raise
        except Exception as error:  # the HTTP library's own errors surface while a stream is being read
            # After the finish reason the answer is complete, and the error does not matter.
            if not waits.finished:
                broke_off = "the answer broke off: " if opened else ""
                raise ModelError(self.name, broke_off + self._reason(error)) from error
        finally:
            if usage and reply is not None:
                self._report(usage, reply)
            elif reply is not None and pieces:  # cut off: the usage comes at the end
                self._estimate(messages, pieces, reply)
        if not waits.finished:
            raise ModelError(self.name, "the answer broke off before its end")
        for call in calls.whole():
            yield call

    async def warm(self, messages: Sequence[Message], extra: dict[str, Any] | None = None) -> None:
        """Prefill the prompt if ``can_warm`` is set. Cancelling closes the request. Raises ModelError.

        A server that does not answer within ``ChatOptions.warm_s`` is given up: it may hang.
        """
        if self._can_warm:
            try:
                async with asyncio.timeout(self._options.warm_s):
                    await self._create(messages, 0, False, extra)
            except TimeoutError as error:
                late = f"no answer for {self._options.warm_s:g} s"
                raise ModelError(self.name, late, "model_timeout") from error
            except Exception as error:
                raise ModelError(self.name, self._reason(error)) from error

    def tokens_in(self, text: str) -> int:
        """Return about how many tokens a text has: the model's tokenizer is not here."""
        return estimated(text)

    async def aclose(self) -> None:
        """Close the connections. Cancelling may leave some open."""
        await self._client.close()

    async def _create(
        self, messages: Sequence[Message], max_tokens: int, stream: bool, extra: dict[str, Any] | None
    ) -> Any:
        import openai

        given = {**(ASKS_USAGE if stream else {}), **self._extra, **(extra or {})}
        if messages and messages[-1]["role"] == "assistant" and stream:
            more, marks = PREFILL_FIELDS[self._options.prefill]
            given |= more
            messages = [*messages[:-1], cast(Message, {**messages[-1], **marks})]
        again = False
        while True:
            limit = self._limit
            body = {name: value for name, value in given.items() if name not in self._refused}
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
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                words = f"{error} {error.body}"
                refused = {name for name in OPTIONAL_FIELDS if name in body and name in words}
                # OpenAI's reasoning models refuse max_tokens, the name that all other servers know.
                renamed = limit != NEW_LIMIT and NEW_LIMIT in words
                if not refused and not renamed:
                    raise
                self._refused |= refused
                self._limit = NEW_LIMIT if renamed else self._limit

    def _report(self, usage: Any, reply: Upstream) -> None:
        """Report the usage of a request to the reply that made it."""
        read, written = usage.prompt_tokens, usage.completion_tokens
        if not (isinstance(read, int) and isinstance(written, int)):
            return
        cached = getattr(usage.prompt_tokens_details, "cached_tokens", 0)
        cached = min(cached, read) if isinstance(cached, int) else 0
        used = Usage(read, written, cached)
        reply.used(used, self._paid(used))

    def _estimate(self, messages: Sequence[Message], pieces: int, reply: Upstream) -> None:
        used = Usage(sum(estimated(one["content"]) + ENTRY_TOKENS for one in messages), pieces)
        reply.used_about(used, self._paid(used))

    def _paid(self, used: Usage) -> float:
        """Return what tokens cost, and count it for the day."""
        options = self._options
        cached_price = options.input_price if options.cached_price is None else options.cached_price
        cost = (used.read - used.cached) * options.input_price + used.cached * cached_price
        cost = (cost + used.written * options.output_price) / 1e6
        if options.spend:
            options.spend(cost)
        return cost

    def _reason(self, error: Exception) -> str:
        causes = [error, error.__cause__] if error.__cause__ is not None else [error]
        said = [str(cause).rstrip(".") or type(cause).__name__ for cause in causes]
        if wait := retry_after(error):
            said.append(f"it asks to wait {wait} s")
        text = " ".join(": ".join(said).split())
        if self._key != NO_KEY:  # a server may quote the key, and clients receive the reason
            text = text.replace(self._key, "(the key)")
        return text[:REASON_CHARACTERS]


def retry_after(error: Exception) -> str:
    """Return the seconds that a server asks to wait before the next request, "" if it does not say.

    https://www.rfc-editor.org/rfc/rfc9110#field.retry-after; its form with a date is ignored.
    """
    response = getattr(error, "response", None)
    wait: str = response.headers.get("retry-after", "") if response is not None else ""
    return wait if wait.isdecimal() else ""


def connected(
    url: str, key: str, seconds: float, headers: Mapping[str, str] = {}, sending: Sequence[Any] = ()
) -> Any:
    """Return the client of a server, an ``openai.AsyncOpenAI``, whose answers are bounded.

    seconds: longest wait for a part of an answer. headers: of each request. sending: called with each one.
    No retries: they would hide a dead server for seconds. In a conversation the next turn is the retry.
    """
    import openai

    timeout = openai.Timeout(seconds, connect=CONNECT_SECONDS)
    return openai.AsyncOpenAI(
        base_url=url,
        api_key=key,
        timeout=timeout,
        max_retries=0,
        default_headers={**headers, "Accept-Encoding": "identity"},
        # Loopback must not go through a proxy, even if the environment names one for all requests.
        http_client=openai.DefaultAsyncHttpxClient(
            trust_env=not is_loopback(url),
            timeout=timeout,
            event_hooks={"request": list(sending), "response": [bound]},
        ),
    )


def key_variable() -> str:
    """Return the name of the environment variable that holds the chat server's key, or ""."""
    return next((name for name in KEY_VARIABLES if os.environ.get(name)), "")


def key_from_environment() -> str:
    """Return the chat server's key from REJOINDER_LLM_KEY or OPENAI_API_KEY, or ``NO_KEY``."""
    return os.environ.get(key_variable()) or NO_KEY


def _found(argument: str) -> tuple[str, str]:
    url, model = server_address(argument, "openai")
    if not model:
        raise ModelError("openai", f"write openai:http://HOST/v1#MODEL, not {without_secrets(url)!r}")
    return url, model


ADAPTER = Adapter(
    "openai",
    lambda found, threads, placement: OpenAiChat(found[0], found[1], key_from_environment()),
    packages=("openai",),
    finder=_found,
)
"""What the registry finds."""
