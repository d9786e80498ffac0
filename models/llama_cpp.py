"""llama.cpp inside this process, through xllamacpp's prebuilt wheel (MIT)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rejoinder.models.openai import MAX_TOKENS, OpenAiChat
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Message

SLOTS = 4
"""Requests decoded side by side; one more waits."""
CONTEXT = 2048
"""Tokens per slot: the history is cut to about half of this."""
SAMPLING = {"temperature": 0.4, "top_p": 0.9, "repeat_penalty": 1.1, "cache_prompt": True}
"""Mild: a very small model is livelier and less often wrong with it than greedy."""


class Slots:
    """Which cached prompt each slot holds, and which slots are free, the longest unused one first."""

    def __init__(self, count: int) -> None:
        self._prompts = [""] * count
        self._free = list(range(count))
        self._some = asyncio.Semaphore(count)

    @asynccontextmanager
    async def take(self, messages: Sequence[Message]) -> AsyncIterator[int]:
        """Hold the free slot whose cache serves this prompt best; waits while none is free.

        A slot that would lose more than half of its prompt is somebody else's conversation: rather than that
        one, the longest unused slot is taken.
        """
        prompt = "".join(f"{message['role']}: {message['content']}\n" for message in messages)

        def served(slot: int) -> int:
            held = self._prompts[slot]
            same = next(
                (at for at, (a, b) in enumerate(zip(held, prompt, strict=False)) if a != b),
                min(len(held), len(prompt)),
            )
            return same if 2 * same >= len(held) else 0

        async with self._some:
            slot = max(self._free, key=served)
            self._free.remove(slot)
            self._prompts[slot] = prompt
            try:
                yield slot
            finally:
                self._free.append(slot)


class LlamaCpp:
    """A GGUF model on this machine.

    llama.cpp's own server runs on its own threads in this process and listens on loopback, behind a random
    key; it is spoken to like any other chat server, so there is one path for all language models, and closing
    a reply's connection stops its decoding. Which slot takes a request is decided here: llama.cpp itself
    passes over a slot that has not noticed a closed connection yet, and reads the whole prompt into another.
    """

    def __init__(self, path: Path, threads: int) -> None:
        if find_spec("xllamacpp") is None:
            raise ModelError("llama", "xllamacpp is not installed; run: pip install xllamacpp")
        import xllamacpp

        if not path.is_file():
            raise ModelError("llama", f"there is no model file {path}")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":  # llama.cpp would end the process over some other files
                raise ModelError("llama", f"{path} is not a GGUF file")
        key = secrets.token_urlsafe(24)
        parameters: Any = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = SLOTS
        parameters.n_ctx = SLOTS * CONTEXT
        parameters.cpuparams.n_threads = threads
        parameters.cpuparams_batch.n_threads = threads
        parameters.cache_ram_mib = 0  # otherwise up to 8 GiB of old prompts are kept
        parameters.n_threads_http = SLOTS + 2
        parameters.api_keys = [key]
        parameters.ui = False
        parameters.endpoint_slots = False
        parameters.verbosity = 0
        try:
            self._server: Any = xllamacpp.Server(parameters)
        except Exception as error:
            raise ModelError("llama", f"cannot load {path}: {error}") from error
        url = f"{self._server.listening_address}/v1"
        name = f"llama:{path.stem}"
        self._chat = OpenAiChat(url, path.stem, key, can_warm=True, extra=SAMPLING, name=name)
        self._slots = Slots(SLOTS)

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer; closing the generator stops the decoding. Raises ModelError.

        It is decoded as fast as the model can, however slowly it is read: a voice takes seconds to speak what
        is written in a tenth of that, and a slot that waited for it would keep other callers waiting.
        """
        tokens: Channel[str] = Channel(MAX_TOKENS, "tokens")
        decoding = asyncio.create_task(self._decode(messages, tokens), name="decode")
        try:
            async for token in tokens:
                yield token
            await decoding
        finally:
            decoding.cancel()
            await asyncio.gather(decoding, return_exceptions=True)

    async def _decode(self, messages: Sequence[Message], out: Channel[str]) -> None:
        try:
            async with self._slots.take(messages) as slot:
                async with aclosing(self._chat.reply(messages, {"id_slot": slot})) as tokens:
                    async for token in tokens:
                        await out.send(token)
        finally:
            out.close()

    async def warm(self, messages: Sequence[Message]) -> None:
        """Bring the prompt into a slot's cache. Raises ModelError."""
        async with self._slots.take(messages) as slot:
            await self._chat.warm(messages, {"id_slot": slot})

    async def aclose(self) -> None:
        """Close the connections and unload the model."""
        await self._chat.aclose()
        self._server = None
