"""vLLM's engine inside this program, without a server in between. Closing a reply aborts its request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from itertools import count
from traceback import clear_frames
from typing import Any

from rejoinder.models.llm.ort.ahead import ahead
from rejoinder.models.llm.ort.sampling import Sampling
from rejoinder.models.llm.vllm.prompt import Prompts
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

VLLM_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",  # vLLM would report the hardware to its makers
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with threads may deadlock
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for answers
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by default vLLM pins its threads to cores that other models need
}
"""Environment variables for vLLM. Variables that are already set keep their value."""
CPU_DEFAULTS = {"kv_cache_memory_bytes": 1 << 30, "block_size": 32}
"""Settings without a GPU. vLLM's own would fill most of the memory and not cache prompts below 128 tokens."""
WARM_BATCH = 16
"""Requests in the largest batch of the warm-up. On a GPU, vLLM's sampler takes another kernel from 8 on, and
another form of that for multiples of 16."""
VLLM_REASON_CHARACTERS = 400
"""Most characters of vLLM's error message."""


class Vllm:
    """A model in vLLM, which batches all requests and caches common prefixes of their prompts.

    vLLM's scheduler and workers are processes of their own; ``aclose`` ends them. The constructor blocks
    until the engine is ready, for at least half a minute.

    model: a folder with the weights, a configuration and a tokenizer with a chat template.
    threads: number of CPU threads, used only without a GPU.
    sampling: by default the model's own sampling, or else the default of ``Sampling``.

    Raises ModelError if the settings or the model cannot be used.
    """

    def __init__(
        self,
        model: str,
        threads: int,
        settings: VllmSettings | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = name_of(model)
        with vllm_environment(threads):
            try:
                from vllm.engine.arg_utils import AsyncEngineArgs
                from vllm.platforms import current_platform
                from vllm.v1.engine.async_llm import AsyncLLM

                defaults = CPU_DEFAULTS if current_platform.is_cpu() else {}
                arguments = {**defaults, **(settings or VllmSettings()).engine()}
                self._engine: Any = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, **arguments))
            except Exception as error:  # each part of vLLM raises errors of its own
                clear_frames(error.__traceback__)  # frees the half-started engine that the frames hold
                raise ModelError(self.name, f"vLLM does not start: {reason(error)}") from error
        self._context: int = self._engine.model_config.max_model_len
        self._tokenizer: Any = self._engine.get_tokenizer()
        self._prompts = Prompts(self._tokenizer)
        own = {} if sampling else self._engine.model_config.get_diff_sampling_param()
        self._sampling = {**_sampling_fields(sampling or Sampling()), **own}
        self._numbers = count(1)
        self._running: set[str] = set()

    @property
    def failed(self) -> str:
        """Why the model can no longer answer, if one of vLLM's processes has ended; "" otherwise."""
        ended = self._engine is None or self._engine.errored
        return f"{self.name}: its engine has ended" if ended else ""

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer, one piece of text for each step of the engine.

        A piece is one token, or a few tokens with speculative decoding. Closing the generator aborts the
        request, which frees its part of the KV cache. Raises ModelError.
        """
        return ahead(self._words(messages, MAX_TOKENS), MAX_TOKENS)

    async def warm(self, messages: Sequence[Message]) -> None:
        """Read the whole blocks of the prompt into the cache. Cancelling aborts that. Raises ModelError."""
        async with aclosing(self._words(messages, 1)) as pieces:
            async for _ in pieces:
                pass

    async def warm_batches(self) -> None:
        """Answer with every batch size from ``WARM_BATCH`` down to 1, so that vLLM compiles its kernels.

        Otherwise it compiles a kernel when calls first need it, and none gets a token for 2 s (H100).
        Cancelling aborts the answers. Raises ModelError.
        """
        prompt = self._prompt([Message(role="user", content="Count the boats.")])
        await asyncio.gather(*(self._write(prompt, length) for length in range(1, WARM_BATCH + 1)))

    async def _write(self, prompt: list[int], length: int) -> None:
        async with aclosing(self._generate(prompt, length, {"ignore_eos": True})) as outputs:
            async for _ in outputs:
                pass

    def count(self, messages: Sequence[Message]) -> int:
        """Return the number of prompt tokens that a reply to ``messages`` reads. Raises ModelError."""
        return len(self._prompt(messages))

    @property
    def context_tokens(self) -> int:
        """Most tokens of a prompt and its answer together: vLLM's ``max_model_len``."""
        return self._context

    def tokens_in(self, text: str) -> int:
        """Return the number of tokens in a text."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    async def aclose(self) -> None:
        """End the engine and its processes. Running replies fail with ModelError.

        Cancelling may leave the processes running.
        """
        if self._running:
            await self._engine.abort(list(self._running))
        if (reading := self._engine.output_handler) is not None:
            reading.cancel()  # otherwise it logs that the engine is gone
            await asyncio.gather(reading, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._engine.shutdown)
        self._engine = None

    async def _words(self, messages: Sequence[Message], most: int) -> AsyncGenerator[str, None]:
        async with aclosing(self._generate(self._prompt(messages), most, {})) as outputs:
            async for output in outputs:
                if output.text:
                    yield output.text

    async def _generate(
        self, prompt: list[int], most: int, more: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Stream vLLM's outputs, each with the new text only. more: further sampling parameters."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = {**self._sampling, **more, "max_tokens": most, "output_kind": RequestOutputKind.DELTA}
        request = str(next(self._numbers))
        self._running.add(request)
        try:
            sampling = SamplingParams(**wanted)
            outputs = self._engine.generate({"prompt_token_ids": prompt}, sampling, request)
            async with aclosing(outputs):
                async for output in outputs:
                    (answer,) = output.outputs
                    if answer.finish_reason == "abort":
                        raise ModelError(self.name, "it was closed in the middle of an answer")
                    yield answer
        except (asyncio.CancelledError, GeneratorExit):
            # vLLM aborts by itself, except for a request that is cancelled on its way to the engine.
            await self._engine.abort(request)
            raise
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(self.name, reason(error)) from error
        finally:
            self._running.discard(request)

    def _prompt(self, messages: Sequence[Message], tools: Tools = NO_TOOLS) -> list[int]:
        try:
            tokens = self._prompts.tokens(messages, tools)
        except Exception as error:
            raise ModelError(self.name, f"cannot read the conversation: {reason(error)}") from error
        if not 0 < len(tokens) < self._context:
            raise ModelError(
                self.name,
                f"a prompt of {len(tokens)} tokens exceeds the context of {self._context}: "
                "shorten the instructions, or set max_model_len in [vllm]",
                "context_length_exceeded",
            )
        return tokens


def name_of(model: str) -> str:
    """Return the name of a model in errors."""
    return f"vllm:{model.rstrip('/').rpartition('/')[2]}"


def _sampling_fields(sampling: Sampling) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "repetition_penalty": sampling.penalty,
    }


@contextmanager
def vllm_environment(threads: int) -> Iterator[None]:
    """Set the environment of vLLM's processes, which are started within the block."""
    for name, value in VLLM_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def reason(error: Exception) -> str:
    """Return an error's message in one line, without pydantic's text around it."""
    text = str(error).rpartition("Value error,")[2].partition("[type=")[0] or type(error).__name__
    if "(above)" in text or "See root cause above" in text:
        text = "its engine has ended; see the log above"
    return " ".join(text.split())[:VLLM_REASON_CHARACTERS].rstrip(".")
