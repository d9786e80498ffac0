"""Load a set of models and warm each of them up by one real inference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from rejoinder.models.llm.openai import OpenAiChat
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.registry import ROLES, check, create
from rejoinder.models.threads import Threads, plan
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.interfaces import Llm, Message, Stt, Tts, TurnModel, Vad
from rejoinder.pipeline.options import Models


@dataclass(frozen=True, slots=True)
class Specs:
    """Which models to load; ``turn`` may be empty for none."""

    vad: str = "silero"
    turn: str = "smart-turn"
    stt: str = "whisper:tiny.en"
    llm: str = "ort:smollm2-135m-instruct"
    tts: str = "piper:en_US-joe-medium"


Report = Callable[[str, float], None]
"""Is told the name of a model that became ready, and the seconds that took."""
Away = Callable[[str, ModelError], None]
"""Is told the name of a model behind a network that does not answer, and why."""


@asynccontextmanager
async def open_models(
    specs: Specs,
    threads: Threads | None = None,
    report: Report = lambda name, seconds: None,
    placement: Placement = HERE,
    away: Away | None = None,
) -> AsyncIterator[Models]:
    """Load and warm up the models for the length of the block; raises ModelError.

    What can be found out without loading is looked at first, of all of them. away: takes why a language
    model behind a network (``OpenAiChat``) does not answer; without it, that raises, too. Cancelling waits
    for the model that is being loaded.
    """
    threads = threads or plan()
    for kind in ROLES:
        if (spec := getattr(specs, kind)) or kind != "turn":
            check(kind, spec)
    async with AsyncExitStack() as stack:
        loaded: dict[str, Any] = {}
        for kind in ROLES:
            if spec := getattr(specs, kind):
                began = time.perf_counter()
                loaded[kind] = await _load(spec, threads, placement)
                stack.push_async_callback(_close, loaded[kind])
                check_fits(kind, loaded[kind], spec.partition(":")[0])
                try:
                    await WARM_UPS[kind](loaded[kind])
                except ModelError as error:
                    if away is None or not isinstance(loaded[kind], OpenAiChat):
                        raise
                    away(spec, error)
                else:
                    report(spec, time.perf_counter() - began)
        load_shedder = LoadShedder([model.engine for model in loaded.values() if hasattr(model, "engine")])
        yield Models(
            loaded["vad"], loaded["stt"], loaded["llm"], loaded["tts"], loaded.get("turn"), load_shedder
        )


async def _load(spec: str, threads: Threads, placement: Placement) -> Any:
    # Loading blocks for seconds: on a thread of its own, the port answers meanwhile.
    making = asyncio.get_running_loop().run_in_executor(None, create, spec, threads, placement)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        # The thread cannot be cancelled, and what it makes has threads and sockets of its own.
        while not making.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([making])
        if making.exception() is None:
            await _close(making.result())
        raise


def _noise(seconds: float) -> AudioChunk:
    generator = np.random.default_rng(0)
    return AudioChunk(to_pcm(generator.normal(0.0, 0.01, int(seconds * RATE)).astype(np.float32)), RATE)


async def _warm_vad(vad: Vad) -> None:
    stream = vad.stream()
    check_fits("vad stream", stream)
    stream.feed(_noise(0.1))


async def _warm_turn(turn: TurnModel) -> None:
    await turn.probability(_noise(2.0).samples(), "")


async def _warm_stt(stt: Stt) -> None:
    stream = stt.stream()
    check_fits("stt stream", stream)
    stream.feed(_noise(2.0))
    await stream.transcribe(is_final=True)


async def warm_llm(llm: Llm) -> None:
    """Let a language model say a word. Raises ModelError."""
    async with aclosing(llm.reply([Message(role="user", content="Say yes.")])) as tokens:
        async for _ in tokens:
            break


async def _warm_tts(tts: Tts) -> None:
    async with aclosing(tts.speak("Ready.")) as chunks:
        async for _ in chunks:
            pass


WARM_UPS: dict[str, Callable[[Any], Any]] = {
    "vad": _warm_vad,
    "turn": _warm_turn,
    "stt": _warm_stt,
    "llm": warm_llm,
    "tts": _warm_tts,
}


async def _close(model: Any) -> None:
    if hasattr(model, "aclose"):
        await model.aclose()
    elif hasattr(model, "close"):
        model.close()
