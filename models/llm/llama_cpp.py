"""llama.cpp inside this process, through xllamacpp's prebuilt wheel (MIT)."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rejoinder.models.hints import require
from rejoinder.models.llm.openai import ChatOptions, OpenAiChat
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.kv_cache import Slots
from rejoinder.pipeline.context.tokens import estimated
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message, ToolCall, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

LLAMA_SLOTS = 4
"""Most requests decoded at the same time; further requests wait."""
LLAMA_CONTEXT = 2048
"""Tokens per slot, of a prompt and its answer together."""
PROMPT_SECONDS = 30.0
"""Longest wait for a token, in seconds: a busy processor reads a long prompt for that long."""
PROPS_SECONDS = 10.0
"""Longest wait for llama.cpp's description of the chat template, in seconds."""
SAMPLING = {"temperature": 0.4, "top_p": 0.9, "repeat_penalty": 1.1, "cache_prompt": True}
"""Mild sampling: it makes a very small model more varied and less often wrong than greedy decoding."""


class LlamaCpp:
    """A GGUF model in llama.cpp on this machine.

    llama.cpp's own server runs on its own threads in this process and listens on loopback, behind a random
    key. The adapter is a client of it, as of any other chat server; closing a reply's connection stops the
    decoding. This class assigns requests to slots. llama.cpp's own choice skips a slot that has not noticed a
    closed connection yet, and reads the whole prompt again into another slot.
    """

    def __init__(self, path: Path, threads: int) -> None:
        require("llama")
        import xllamacpp

        if not path.is_file():
            raise ModelError("llama", f"there is no model file {path}")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":  # on some other files llama.cpp ends the whole process
                raise ModelError("llama", f"{path} is not a GGUF file")
        key = secrets.token_urlsafe(24)
        parameters: Any = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = LLAMA_SLOTS
        parameters.n_ctx = LLAMA_SLOTS * LLAMA_CONTEXT
        parameters.cpuparams.n_threads = threads
        parameters.cpuparams_batch.n_threads = threads
        parameters.swa_full = True  # otherwise no prompt of a model with a sliding window can be continued
        parameters.cache_ram_mib = 0  # the default keeps up to 8 GiB of old prompts
        parameters.n_threads_http = LLAMA_SLOTS + 2
        parameters.api_keys = [key]
        parameters.ui = False
        parameters.endpoint_slots = False
        parameters.verbosity = 0
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except Exception as error:
            raise ModelError("llama", f"cannot load {path}: {error}") from error
        self._key = key
        url = f"{self._server.listening_address}/v1"
        name = f"llama:{path.stem}"
        options = ChatOptions(PROMPT_SECONDS, PROMPT_SECONDS, prefill="last")
        self._chat = OpenAiChat(
            url, path.stem, key, can_warm=True, extra=SAMPLING, name=name, options=options
        )
        self._slots = Slots(LLAMA_SLOTS)

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer; closing the generator stops the decoding. Raises ModelError."""
        return ahead(self._decode(messages), MAX_TOKENS)

    async def _decode(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        async with self._slots.take(messages) as slot:
            async with aclosing(self._chat.reply(messages, {"id_slot": slot})) as tokens:
                async for token in tokens:
                    yield token

    async def warm(self, messages: Sequence[Message]) -> None:
        """Read the prompt into the cache of a slot. Cancelling closes the request. Raises ModelError."""
        async with self._slots.take(messages) as slot:
            await self._chat.warm(messages, {"id_slot": slot})

    @property
    def context_tokens(self) -> int:
        """Most tokens of a prompt and its answer together, in one slot."""
        return LLAMA_CONTEXT

    def tokens_in(self, text: str) -> int:
        """Return about how many tokens a text has: the server's count would be a request for each entry."""
        return estimated(text)

    async def aclose(self) -> None:
        """Close the connections and unload the model. Cancelling may leave the model loaded."""
        await self._chat.aclose()
        self._server = None

    async def decode_answer(
        self, messages: Sequence[Message], tools: Tools
    ) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer and the tool calls, at the consumer's speed; closing it stops the decoding.

        Raises ModelError.
        """
        async with self._slots.take(messages) as slot:
            async with aclosing(self._chat.answer(messages, tools, {"id_slot": slot})) as pieces:
                async for piece in pieces:
                    yield piece

    def calls_tools(self) -> bool:
        """Return whether llama.cpp finds tools in the model's chat template. Raises ModelError."""
        request = urllib.request.Request(
            f"{self._server.listening_address}/props", headers={"Authorization": f"Bearer {self._key}"}
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=PROPS_SECONDS) as response:
                return bool(json.load(response)["chat_template_caps"]["supports_tools"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError("llama", f"llama.cpp does not describe its chat template: {error!r}") from error


class ToolLlamaCpp:
    """A GGUF model whose chat template has tools."""

    def __init__(self, model: LlamaCpp) -> None:
        self._model = model
        self.reply = model.reply
        self.warm = model.warm
        self.aclose = model.aclose

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, then the tool calls, which llama.cpp's own parser finds.

        llama.cpp chooses the parser by the chat template (github.com/ggml-org/llama.cpp,
        docs/function-calling.md). It does not hold every model to a required call. Closing the generator
        stops the decoding. Raises ModelError.
        """
        return ahead(self._model.decode_answer(messages, tools), MAX_TOKENS)


def open_llama(path: Path, threads: int) -> LlamaCpp | ToolLlamaCpp:
    """Load a GGUF model, which can call tools if its chat template has them. Raises ModelError."""
    model = LlamaCpp(path, threads)
    return ToolLlamaCpp(model) if model.calls_tools() else model
