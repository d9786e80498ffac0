"""The engines of language models behind a list and a router are measured and watched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rejoinder.agent.metrics.collectors import named_engines
from rejoinder.models import loading
from rejoinder.models.engines import engines_of
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.llm.routing.router import Router
from rejoinder.models.llm.routing.settings import NO_ROUTING, Routing
from rejoinder.models.loading import Specs, open_models, open_variant
from rejoinder.models.placement import Placement
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.models.threads import Threads
from rejoinder.pipeline.engines.engine import Engine

SPECS = Specs("scripted:vad", "", "scripted:stt|hi", "scripted:llm|yes scripted:llm|no", "scripted:tts")


class LocalLlm(ScriptedLlm):
    """A scripted model beside an engine of its own, as an embedded model has one."""

    def __init__(self, name: str) -> None:
        super().__init__(["Yes."], 0.0, 0.0)
        self.engine: Engine[int, int] = Engine(name, lambda batch: batch)

    def close(self) -> None:
        self.engine.close()


def test_engines_behind_a_router_are_found_once() -> None:
    big, small, opener = (LocalLlm(name) for name in ("big", "small", "opener"))
    candidates = {name: Candidate(name, llm) for name, llm in (("big", big), ("small", small))}
    failover = Failover(list(candidates.values()))
    assert engines_of(failover, failover) == [big.engine, small.engine]
    apart = Router(candidates, Routing(opening_model="x"), opener=Candidate("opener", opener))
    assert engines_of(apart) == [big.engine, small.engine, opener.engine]
    assert engines_of(Router(candidates, NO_ROUTING, opener=candidates["small"])) == engines_of(failover)
    for model in (big, small, opener):
        model.close()


@pytest.mark.parametrize(
    ("routing", "expected"),
    [
        (NO_ROUTING, ["llm|yes", "llm|no"]),
        (Routing(opening_model="scripted:llm|hm"), ["llm|yes", "llm|no", "llm|hm"]),
    ],
)
def test_engines_of_a_list_are_measured_and_watched(
    routing: Routing, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = loading.create

    def create(spec: str, threads: Threads, placement: Placement) -> Any:
        name = spec.partition(":")[2]
        return LocalLlm(name) if name.startswith("llm") else usual(spec, threads, placement)

    monkeypatch.setattr(loading, "create", create)

    async def check() -> None:
        placement = Placement(routing=routing)
        async with open_models(SPECS, placement=placement) as models:
            watched = models.load_shedder.engines
            assert [engine.name for engine in watched] == expected
            assert list(named_engines([models])) == [(name, "llm") for name in expected]
            async with open_variant(models, {"llm": SPECS.llm}, placement=placement):
                assert [engine.name for engine in watched] == expected * 2

    asyncio.run(check())
