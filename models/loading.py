"""Load a set of models and warm up each of them with one real inference."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rejoinder.models.engines import engines_of
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.llm.failover.opening import all_missing, check_list, open_list, several
from rejoinder.models.llm.openai import OpenAiChat
from rejoinder.models.llm.routing.loading import open_router
from rejoinder.models.llm.routing.router import Router
from rejoinder.models.llm.spec_list import listed
from rejoinder.models.llm.triton.adapter import TritonLlm
from rejoinder.models.llm.warming import warm_llm
from rejoinder.models.placement import HERE, Placement
from rejoinder.models.registry import check, create
from rejoinder.models.specs import ROLES
from rejoinder.models.threads import Threads, plan
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.interfaces import Stt, Tts, TurnModel, Vad
from rejoinder.pipeline.options import Models


@dataclass(frozen=True, slots=True)
class Specs:
    """The spec of each model to load. An empty ``turn`` means no turn model."""

    vad: str = "silero"
    turn: str = "smart-turn"
    stt: str = "whisper:tiny.en"
    llm: str = "ort:smollm2-135m-instruct"
    tts: str = "piper:en_US-joe-medium"


REMOTE = (OpenAiChat, TritonLlm, Failover, Router)
"""Language models in a server, which may be started after this program."""
Report = Callable[[str, float], None]
"""Takes the spec of a model that is ready, and the seconds that loading and warming up took."""
Away = Callable[[str, ModelError], None]
"""Takes the spec of a remote model that does not answer, and the error."""


@asynccontextmanager
async def open_models(
    specs: Specs,
    threads: Threads | None = None,
    report: Report = lambda name, seconds: None,
    placement: Placement = HERE,
    away: Away | None = None,
) -> AsyncIterator[Models]:
    """Load and warm up the models, and close them at the end of the block.

    All specs are checked before the first model is loaded.

    report: called for each model that is ready.
    away: called if a remote language model (``REMOTE``) does not answer. Without it, the error is raised.

    Raises ModelError. Cancelling waits until the current model is loaded, then closes all models.
    """
    threads = threads or plan()
    for kind in ROLES:
        if (spec := getattr(specs, kind)) or kind != "turn":
            _check(kind, spec, placement)
    async with AsyncExitStack() as stack:
        loaded: dict[str, Any] = {}
        for kind in ROLES:
            if spec := getattr(specs, kind):
                loaded[kind] = await _open(kind, spec, threads, placement, report, away, stack)
        load_shedder = LoadShedder(engines_of(*loaded.values()))
        yield Models(
            loaded["vad"],
            loaded["stt"],
            loaded["llm"],
            loaded["tts"],
            loaded.get("turn"),
            load_shedder,
            asdict(specs) | _tables(specs.llm, placement),
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
    for kind, spec in specs.items():
        _check(kind, spec, placement)
    async with AsyncExitStack() as stack:
        loaded = {
            kind: await _open(kind, spec, threads or plan(), placement, report, None, stack)
            for kind, spec in specs.items()
        }
        models.load_shedder.watch(engines_of(*loaded.values()))
        tables = _tables(specs["llm"], placement) if "llm" in specs else {}
        yield replace(models, **loaded, specs={**models.specs, **specs, **tables})


def _tables(llm: str, placement: Placement) -> dict[str, str]:
    """Return what identifies the tables of the language models in a list, and the rules, without keys."""
    found = {
        name: placement.models[name].model_dump(mode="json", exclude={"key_file", "key_env", "headers"})
        for name in listed(llm, placement.models)
        if name in placement.models
    }
    rules = [rule.model_dump(mode="json") for rule in placement.routing.routes]
    return {"llm_tables": json.dumps(found, sort_keys=True)} | (
        {"llm_routes": json.dumps(rules, sort_keys=True)} if rules else {}
    )


async def _open(
    kind: str,
    spec: str,
    threads: Threads,
    placement: Placement,
    report: Report,
    away: Away | None,
    stack: AsyncExitStack,
) -> Any:
    """Load one model, warm it up, and leave its closing to the stack."""

    async def load(spec: str) -> Any:
        loaded = await _load(spec, threads, placement)
        stack.push_async_callback(_close, loaded)
        check_fits(kind, loaded, spec.partition(":")[0])
        return loaded

    began = time.perf_counter()
    model: Any
    if kind == "llm" and several(spec, placement):
        model = failover = await open_list(spec, placement, load, stack)
        error = all_missing(failover)
        if placement.routing.on:
            model = await open_router(spec, failover, placement, load, stack)
    else:
        model = await load(spec)
        error = await _warm(kind, model)
    if error is None:
        report(spec, time.perf_counter() - began)
    elif away is None or not isinstance(model, REMOTE):
        raise error
    else:
        away(spec, error)
    return model


async def _warm(kind: str, model: Any) -> ModelError | None:
    try:
        await WARM_UPS[kind](model)
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
