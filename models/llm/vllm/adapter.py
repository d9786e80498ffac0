"""vLLM's engine as a part of this program: no server in between, and a reply that is closed is aborted."""

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
from rejoinder.pipeline.replying.utterance import MAX_TOKENS

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",  # it would tell its makers what it runs on
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with threads may never come to itself
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for answers
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by itself it ties its threads to cores that others need, too
}
"""What vLLM is told where nobody has told it otherwise."""
CPU_DEFAULTS = {"kv_cache_memory_bytes": 1 << 30, "block_size": 32}
"""Without a GPU it would fill most of the memory, and cache nothing of a prompt below 128 tokens."""
REASON_CHARACTERS = 400


class Vllm:
    """A model in vLLM, which batches all callers and keeps what their prompts begin with.

    vLLM's scheduler and its workers are processes of its own, and end with ``aclose``. model: a folder with
    the weights, a configuration and a tokenizer with a chat template. threads: used where there is no GPU.
    sampling: by default the model's own where it comes with one, else a mild one. Blocks until the engine is
    ready, half a minute at least. Raises ModelError where the settings or the model cannot be used.
    """

    def __init__(
        self,
        model: str,
        threads: int,
        settings: VllmSettings | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = name_of(model)
        with telling(threads):
            try:
                from vllm.engine.arg_utils import AsyncEngineArgs
                from vllm.platforms import current_platform
                from vllm.v1.engine.async_llm import AsyncLLM

                defaults = CPU_DEFAULTS if current_platform.is_cpu() else {}
                arguments = {**defaults, **(settings or VllmSettings()).engine()}
                self._engine: Any = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, **arguments))
            except Exception as error:  # each of its parts complains in its own way
                clear_frames(error.__traceback__)  # half an engine in there would only end with the program
                raise ModelError(self.name, f"vLLM does not start: {reason(error)}") from error
        self._context: int = self._engine.model_config.max_model_len
        self._tokenizer: Any = self._engine.get_tokenizer()
        self._prompts = Prompts(self._tokenizer)
        own = {} if sampling else self._engine.model_config.get_diff_sampling_param()
        self._sampling = {**_as_vllm_says(sampling or Sampling()), **own}
        self._numbers = count(1)
        self._running: set[str] = set()

    @property
    def failed(self) -> str:
        """Why it can answer nobody any more: one of vLLM's processes has ended. "" while it can."""
        ended = self._engine is None or self._engine.errored
        return f"{self.name}: its engine has ended" if ended else ""

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer, in one piece for each step of the engine.

        That is a token, or a few of them where tokens are guessed. Closing the generator aborts the request,
        which frees what it holds of the cache. Raises ModelError.
        """
        return ahead(self._words(messages, MAX_TOKENS), MAX_TOKENS)

    async def warm(self, messages: Sequence[Message]) -> None:
        """Read the prompt into the cache, in whole blocks. Cancelling aborts that. Raises ModelError."""
        async with aclosing(self._words(messages, 1)) as pieces:
            async for _ in pieces:
                pass

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens of these messages a reply reads. Raises ModelError."""
        return len(self._prompt(messages))

    async def aclose(self) -> None:
        """End the engine and its processes; replies that run fail with a ModelError."""
        if self._running:
            await self._engine.abort(list(self._running))
        if (reading := self._engine.output_handler) is not None:
            reading.cancel()  # else it would log that the engine is gone
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
        """Stream vLLM's outputs, each with what is new in it; ``more`` is told of the sampling."""
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
            # It aborts by itself, but for a request that was cancelled on its way to the engine.
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
    """Return what errors call a model."""
    return f"vllm:{model.rstrip('/').rpartition('/')[2]}"


def _as_vllm_says(sampling: Sampling) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "repetition_penalty": sampling.penalty,
    }


@contextmanager
def telling(threads: int) -> Iterator[None]:
    """Tell vLLM's processes what only the environment can tell them; they are started within the block."""
    for name, value in ENVIRONMENT.items():
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
    """Return what went wrong in one line, without what pydantic says before and behind it."""
    text = str(error).rpartition("Value error,")[2].partition("[type=")[0] or type(error).__name__
    if "(above)" in text or "See root cause above" in text:
        text = "its engine has ended, and said why above"
    return " ".join(text.split())[:REASON_CHARACTERS].rstrip(".")
