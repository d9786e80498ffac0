"""Makes a router of the language models in a list that is open already."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace

from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.llm.failover.opening import Load, error_of, open_candidate, public_names
from rejoinder.models.llm.routing.router import Router, ToolRouter
from rejoinder.models.llm.spec_list import listed
from rejoinder.models.placement import Placement
from rejoinder.pipeline.interfaces import ToolLlm

log = logging.getLogger(__name__)


async def open_router(
    spec: str, failover: Failover, placement: Placement, load: Load, stack: AsyncExitStack
) -> Router:
    """Return a router over the models of a list, and load the model of its openings.

    spec: the list. failover: its models. Rules for models that are not in the list do not hold: an agent may
    use another list for some of its calls. Raises ModelError if the model of the openings cannot be loaded;
    one that does not answer is logged only. Cancelling stops the loading.
    """
    routing = placement.routing
    found = listed(spec, placement.models)
    models = dict(zip(found, failover.candidates, strict=True))
    routing = replace(routing, routes=[rule for rule in routing.routes if rule.model in models])
    for rule in routing.routes:
        if rule.tools and not isinstance(models[rule.model].llm, ToolLlm):
            log.warning("a rule for replies with tools never matches: %s cannot call any", rule.model)
    opener: Candidate | None = None
    if one := routing.opening_model:
        opener = models.get(one) or await open_candidate(one, public_names([one])[0], placement, load, stack)
    kind = ToolRouter if any(isinstance(one.llm, ToolLlm) for one in failover.candidates) else Router
    router = kind(models, routing, placement.hedge, opener, placement.spending)
    stack.push_async_callback(router.aclose)
    if opener and (error := await error_of(opener.name, router.warm_opener())):
        log.warning("the model of the openings does not answer yet: %s", error)
    return router
