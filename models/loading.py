"""Load a set of models and warm up each of them with one real inference."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rejoinder.models.engines import engines_of, llms_of
from rejoinder.models.identity import identity
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.llm.failover.opening import all_missing, check_list, open_list, several
from rejoinder.models.llm.openai import OpenAiChat
from rejoinder.models.llm.routing.choosing import mistake
from rejoinder.models.llm.spec_list import all_listed
from rejoinder.models.llm.warming import warm_llm
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.registry import check, create, language_model, voice
from rejoinder.models.specs import LANGUAGE_MODELS, ROLES
from rejoinder.models.threads import Threads, plan
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.engines.steps import AtWork
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.interfaces import Llm, Stt, Tts, TurnModel, Vad
from rejoinder.pipeline.options import Models


@dataclass(frozen=True, slots=True)
class Specs:
    """The spec of each model to load. An empty ``turn`` means no turn model."""

    vad: str = "silero"
    turn: str = "smart-turn"
    stt: str = "whisper:tiny.en"
    llm: str = LANGUAGE_MODELS["small"]
    tts: str = "piper:en_US-joe-medium"


@runtime_checkable
class GivesWay(Protocol):
    """A language model that can leave the cores to the voice for a moment."""

    def give_way_to(self, engine: AtWork) -> None:
        """Wait before tokens that are not urgent while ``engine`` is at work."""


Report = Callable[[str, float], None]
"""Takes the spec of a model that is ready, and the seconds that loading and warming up took."""
Unreachable = Callable[[str, ModelError], None]
"""Takes the spec of a remote model that does not answer, and the error."""


def wrong_rule(llm: str, placement: Placement) -> str:
    """Return the sentence about the first rule that cannot work with this list of models, "" if all can."""
    there = all_listed(language_model(llm), placement.busy_llm, placement.models)
    return mistake(placement.routes, there, placement.day_budget)


@asynccontextmanager
async def open_models(
    specs: Specs,
    threads: Threads | None = None,
    report: Report = lambda name, seconds: None,
    placement: Placement = HERE,
    away: Unreachable | None = None,
) -> AsyncIterator[Models]:
    """Load and warm up the models, and close them at the end of the block.

    All specs are checked before the first model is loaded.

    report: called for each model that is ready.
    away: called if a remote language model (``OpenAiChat``) does not answer. Without it, the error is raised.

    Raises ModelError. Cancelling waits until the current model is loaded, then closes all models.
    """
    threads = threads or plan()
    specs = replace(specs, llm=language_model(specs.llm), tts=voice(specs.tts))
    if wrong := wrong_rule(specs.llm, placement):
        raise ModelError("routes", wrong)
    for kind in ROLES:
        if (spec := getattr(specs, kind)) or kind != "turn":
            _check(kind, spec, placement)
    async with AsyncExitStack() as stack:
        loaded: dict[str, Any] = {}
        for kind in ROLES:
            if spec := getattr(specs, kind):
                loaded[kind] = await _open(kind, spec, threads, placement, report, away, stack)
        if hasattr(loaded["tts"], "engine"):
            for llm in llms_of(loaded["llm"]):
                if isinstance(llm, GivesWay):
                    llm.give_way_to(loaded["tts"].engine)
        yield Models(
            loaded["vad"],
            loaded["stt"],
            loaded["llm"],
            loaded["tts"],
            loaded.get("turn"),
            LoadShedder(_engines(loaded)),
            identity({kind: getattr(specs, kind) for kind in ROLES}, placement),
        )


@asynccontextmanager
async def open_variant(
    models: Models,
    specs: Mapping[str, str],
    threads: Threads | None = None,
    report: Report = lambda name, seconds: None,
    placement: Placement = HERE,
) -> AsyncIterator[Models]:
    """Load other models for some roles, and close them at the end of the block; the rest is shared.

    models: the models that are loaded already. specs: the specs of the others, by role: vad, turn, stt, llm
    or tts. report: called for each model that is ready. Raises ModelError. Cancelling waits until the current
    model is loaded, then closes the others.
    """
    if unknown := [role for role in specs if role not in ROLES]:
        raise ModelError(unknown[0], f"there is no such role; there are: {', '.join(ROLES)}")
    placement = replace(placement, busy_llm="")  # it would be loaded once more
    named = dict(specs)
    named |= {"llm": language_model(specs["llm"])} if "llm" in specs else {}
    named |= {"tts": voice(specs["tts"])} if "tts" in specs else {}
    for kind, spec in named.items():
        _check(kind, spec, placement)
    async with AsyncExitStack() as stack:
        loaded: dict[str, Any] = {
            kind: await _open(kind, spec, threads or plan(), placement, report, None, stack)
            for kind, spec in named.items()
        }
        models.load_shedder.watch(_engines(loaded))
        known = {**models.specs, **identity(named, placement)} if models.specs else {}
        yield replace(models, **loaded, specs=known)


@asynccontextmanager
async def open_llm(spec: str, threads: Threads, placement: Placement = HERE) -> AsyncIterator[Llm]:
    """Load and warm up a language model alone, and close it at the end of the block.

    Raises ModelError. Cancelling waits until it is loaded, then closes it.
    """
    placement = replace(placement, busy_llm="")
    _check("llm", spec, placement)
    async with AsyncExitStack() as stack:
        yield await _open("llm", spec, threads, placement, lambda name, seconds: None, None, stack)


async def _open(
    kind: str,
    spec: str,
    threads: Threads,
    placement: Placement,
    report: Report,
    away: Unreachable | None,
    stack: AsyncExitStack,
) -> Any:
    """Load one model, warm it up, and leave its closing to the stack."""
    began = time.perf_counter()

    async def load(spec: str) -> Any:
        loaded = await _load(spec, threads, placement)
        stack.push_async_callback(_close, loaded)
        check_fits(kind, loaded, spec.partition(":")[0])
        return loaded

    if kind == "llm" and several(spec, placement):
        loaded = await open_list(spec, placement, load, stack)
        error = all_missing(loaded)
    else:
        loaded = await load(spec)
        error = await _warmed(kind, loaded)
    if error is None:
        report(spec, time.perf_counter() - began)
    elif away is None or not isinstance(loaded, OpenAiChat | Failover):
        raise error
    else:
        away(spec, error)
    return loaded


async def _warmed(kind: str, loaded: Any) -> ModelError | None:
    try:
        await WARM_UPS[kind](loaded)
    except ModelError as error:
        return error
    return None


def _check(kind: str, spec: str, placement: Placement) -> None:
    if kind == "llm" and several(spec, placement):
        check_list(spec, placement)
    else:
        check(kind, spec)


async def _load(spec: str, threads: Threads, placement: Placement) -> Any:
    # Loading blocks for seconds. On a thread, the event loop can serve the port meanwhile.
    loading = asyncio.get_running_loop().run_in_executor(None, create, spec, threads, placement)
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        # The thread cannot be cancelled, and the loaded model has threads and sockets to close.
        while not loading.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([loading])
        if loading.exception() is None:
            await _close(loading.result())
        raise


def _engines(loaded: Mapping[str, Any]) -> list[Engine[Any, Any]]:
    return [engine for model in loaded.values() for engine in engines_of(model)]


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
"""The first request of each model, by its role: it brings code and weights into memory."""


async def _close(model: Any) -> None:
    if hasattr(model, "aclose"):
        await model.aclose()
    elif hasattr(model, "close"):
        model.close()
