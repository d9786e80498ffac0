"""llama.cpp inside this process, through xllamacpp's prebuilt wheel (MIT)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from rejoinder.models.adapter import Adapter
from rejoinder.models.hints import VERIFY
from rejoinder.models.llm.openai import ChatOptions, OpenAiChat
from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.kv_cache import Slots
from rejoinder.models.seed import seed
from rejoinder.models.specs import catalogued_llms
from rejoinder.pipeline.context.tokens import estimated
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

TOKEN_SECONDS = 15.0
"""Longest wait for a token, in seconds: a long prompt takes a slow processor long."""
LLAMA_SLOTS = 4
"""Most requests decoded at the same time; further requests wait."""
LLAMA_CONTEXT = 2048
"""Tokens per slot. The history is cut to about half of this."""
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
        ADAPTER.require()
        import xllamacpp

        if not path.is_file():
            raise ModelError("llama", f"there is no model file {path}: mend the path")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":  # on some other files llama.cpp ends the whole process
                raise ModelError("llama", f"{path} is not a GGUF file: llama.cpp reads no other")
        key = secrets.token_urlsafe(24)
        parameters: Any = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = LLAMA_SLOTS
        parameters.n_ctx = LLAMA_SLOTS * LLAMA_CONTEXT
        parameters.cpuparams.n_threads = threads
        parameters.cpuparams_batch.n_threads = threads
        parameters.cache_ram_mib = 0  # the default keeps up to 8 GiB of old prompts
        parameters.n_threads_http = LLAMA_SLOTS + 2
        parameters.api_keys = [key]
        parameters.ui = False
        parameters.endpoint_slots = False
        parameters.verbosity = 0
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except Exception as error:
            raise ModelError("llama", f"cannot load {path}: {error}; {VERIFY}") from error
        url = f"{self._server.listening_address}/v1"
        name = f"llama:{path.stem}"
        extra = SAMPLING if (number := seed()) is None else {**SAMPLING, "seed": number}
        options = ChatOptions(TOKEN_SECONDS, TOKEN_SECONDS, warm_s=TOKEN_SECONDS)
        self._chat = OpenAiChat(url, path.stem, key, True, extra, name, options)
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


ADAPTER = Adapter(
    "llama",
    lambda path, threads, placement: LlamaCpp(path, threads),
    packages=("xllamacpp", "openai"),
    weights="{}",
    default="smollm2-135m-instruct",
    suffix=".gguf",
    names=catalogued_llms,
    share="llm",
)
"""What the registry finds."""
