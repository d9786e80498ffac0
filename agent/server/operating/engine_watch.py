"""Watches the engines: lets others pass a slow step, gives up one that hangs, and says what does not work."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from rejoinder.agent.metrics.loop_watch import where
from rejoinder.agent.wires.failures import MODEL_FAILS
from rejoinder.models.engines import engines_of
from rejoinder.models.llm.warming import probe_llm
from rejoinder.models.loading import WARM_UPS
from rejoinder.models.specs import ROLES
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import Models
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.engines.steps import LEAST_SLOW_SECONDS, EngineStep

log = logging.getLogger(__name__)

STEP_SECONDS = 10.0
"""A step that takes longer than this, in seconds, is logged, where none is given up."""
TIMES_THE_LONGEST = 4.0
"""A step is not given up before it has taken this number of times the longest of its engine's last steps."""
TIMES_THE_LIMIT = 3.0
"""A step that has taken this number of times the limit is given up all the same."""
CHECKS = 10
"""Least number of checks of an engine within the time after which its step hangs."""
STEP_CHECK_SECONDS = 0.05
"""Longest interval between two checks, in seconds. A caller behind a slow step waits that much longer."""
IDLE_CHECK_SECONDS = 0.2
"""The same while no step was running at the last check: an idle server should sleep."""
PROBE_INTERVAL_SECONDS = 1.0
"""Interval between two requests to a model that does not work, in seconds."""
PROBES: dict[str, Callable[[Any], Any]] = {**WARM_UPS, "llm": probe_llm}
"""The request that shows whether a model works, by its role."""
NEEDED_ROLES = ("stt", "llm", "tts")
"""Roles without which no call can be answered."""


class EngineWatch:
    """Watches the engines of all sets of models while ``run`` runs.

    trouble: why no call can be answered now, for callers; "" while all models work. A model counts as broken
    when its engine has failed again and again, and a request of ours fails, too. So requests that are wrong
    do not make a server refuse calls, and the first request that succeeds makes it ready again.

    sets: returns all sets of models that are loaded. seconds: after which a step hangs; 0 gives none up.
    """

    def __init__(self, sets: Callable[[], Iterable[Models]], seconds: float) -> None:
        self.trouble = ""
        self._sets = sets
        self._seconds = seconds
        self._seen: dict[EngineStep, tuple[float, float]] = {}
        self._reported: set[EngineStep] = set()

    async def watch(self) -> None:
        """Look for steps that are slow or hang, until cancelled."""
        longest = (self._seconds or STEP_SECONDS) / CHECKS
        interval = min(longest, STEP_CHECK_SECONDS)
        last = time.perf_counter()
        while True:
            await asyncio.sleep(interval if self._seen else min(longest, IDLE_CHECK_SECONDS))
            # A process that was stopped, or a loop that was blocked, is no reason to blame an engine. A step
            # is slow after two intervals already, so one check adds no more than one to that time.
            passed, last = min(time.perf_counter() - last, 2 * longest), time.perf_counter()
            seen, self._seen = self._seen, {}
            engines = {id(one): one for each in self._sets() for one in each.load_shedder.engines}
            for engine in engines.values():
                for step in engine.running_steps:
                    new = passed if step in seen else min(passed, last - step.began)
                    slow, hangs = seen.get(step, (0.0, 0.0))
                    self._seen[step] = slow + min(new, interval), hangs + new
                    self._check(engine, step, *self._seen[step])
            self._reported &= self._seen.keys()

    def _check(self, engine: Engine[Any, Any], step: EngineStep, slow: float, seconds: float) -> None:
        least = self._seconds or STEP_SECONDS
        limit = min(max(least, TIMES_THE_LONGEST * engine.longest), TIMES_THE_LIMIT * least)
        if engine.waiting and LEAST_SLOW_SECONDS <= slow and seconds < limit:
            self._let_pass(engine, step, slow, limit)
        if seconds < limit or step in self._reported:
            return
        self._reported.add(step)
        waiting, stack = engine.waiting, where(sys._current_frames().get(step.thread))
        ends = self._seconds > 0.0 and engine.give_up(step)
        log.warning(
            "%s has not finished a step for %.1f s, and %d jobs wait: in %s%s%s",
            engine.name,
            time.perf_counter() - step.began,
            waiting,
            stack,
            f" (calls {step.calls})" if step.calls else "",
            "; the step is given up" if ends else "",
            extra={"engine": engine.name, "waiting": waiting, "calls": step.calls},
        )

    def _let_pass(self, engine: Engine[Any, Any], step: EngineStep, seconds: float, limit: float) -> None:
        if seconds >= engine.slow_after(limit) and engine.hand_over(step):
            log.info(
                "%s takes long for a step, %.2f s so far: another thread takes the jobs of other calls%s",
                engine.name,
                time.perf_counter() - step.began,
                f" (calls {step.calls})" if step.calls else "",
                extra={"engine": engine.name, "calls": step.calls},
            )

    async def probe(self) -> None:
        """Ask the models whose engine keeps failing, until cancelled."""
        while True:
            await asyncio.sleep(PROBE_INTERVAL_SECONDS)
            trouble = ""
            for models in self._sets():
                for role in NEEDED_ROLES:
                    trouble = trouble or await self._trouble_of(role, getattr(models, role))
            if self.trouble and not trouble:
                log.warning("all models work again: calls are taken")
            self.trouble = trouble

    async def _trouble_of(self, role: str, model: Any) -> str:
        """Return why a model cannot answer, "" if it can, or if its engine is well."""
        reason = next((one.trouble for one in engines_of(model) if one.trouble), "")
        if not reason:
            return ""
        asked = model.voice if isinstance(model, PhraseVoice) else model  # kept phrases would prove nothing
        try:
            async with asyncio.timeout(self._seconds or STEP_SECONDS):
                await PROBES[role](asked)
        except Exception:  # an adapter of others may raise what it likes, and the watch goes on
            trouble = MODEL_FAILS.format(role=ROLES[role])
            if self.trouble != trouble:
                log.error("no calls are taken: the %s does not work: %s", ROLES[role], reason)
            return trouble
        return ""
