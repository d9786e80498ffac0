"""Opens the language model of a set: one, or several that answer as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.failover import Failover, ToolFailover
from rejoinder.models.llm.model_settings import ModelSettings
from rejoinder.models.llm.openai import (
    BETWEEN_TOKENS_SECONDS,
    FIRST_TOKEN_SECONDS,
    NO_KEY,
    TOOL_CALL_SECONDS,
    ChatOptions,
    OpenAiChat,
)
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.opening import Openings, opening_prompt
from rejoinder.models.llm.routing.router import Router
from rejoinder.models.llm.spec_list import all_listed, listed, unknown
from rejoinder.models.llm.warming import warm_llm
from rejoinder.models.placement import Placement
from rejoinder.models.registry import check
from rejoinder.models.specs import no_language_model
from rejoinder.pipeline.context.tokens import CONTEXT_TOKENS
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolLlm

log = logging.getLogger(__name__)

GIVE_UP_SECONDS = 15.0
"""Longest wait for a first token of one of several servers: it may be late, while the next one is asked."""

Load = Callable[[str], Awaitable[Any]]
"""Loads the model of a spec, and leaves its closing to the set that it is for."""


def several(spec: str, placement: Placement) -> bool:
    """Return whether a spec is a list of models: of several, or of one with a table."""
    found = listed(spec, placement.models)
    more = bool(placement.busy_llm or placement.openings.phrases or placement.openings.model)
    return more or len(found) > 1 or any(one in placement.models for one in found)


def check_list(spec: str, placement: Placement) -> None:
    """Check a list of language models without loading any. Raises ModelError."""
    found = listed(spec, placement.models)
    if len(listed(placement.busy_llm, placement.models)) > 1:
        raise ModelError(placement.busy_llm, "busy_llm names one model: leave the others out")
    twice = [one for one in found if found.count(one) > 1]
    found = all_listed(spec, placement.busy_llm, placement.models)
    if (one := placement.openings.model) and one not in found:
        found.append(one)
    if wrong := unknown(found, placement.models):
        tables = ", ".join(f"[models.{name}]" for name in placement.models) or "none"
        raise ModelError("llm", f"{no_language_model(wrong[0])}; tables: {tables}")
    if twice:
        raise ModelError(twice[0], "it is in the list twice: leave one out")
    for one in found:
        settings = placement.models.get(one)
        check("llm", settings.full_spec if settings else one)
        if settings:
            settings.key(one)


async def open_list(spec: str, placement: Placement, load: Load, stack: AsyncExitStack) -> Failover:
    """Load the models of a list, and ask each for one token; the breaker opens for one that does not answer.

    Raises ModelError if a model cannot be loaded, or if no model answers. Cancelling stops the loading.
    """
    placement = replace(placement, spending=placement.spending or DaySpending())
    found = all_listed(spec, placement.busy_llm, placement.models)
    names = public_names(found)
    candidates = [
        await open_candidate(one, name, placement, load, stack)
        for one, name in zip(found, names, strict=True)
    ]
    kind = ToolFailover if any(isinstance(one.llm, ToolLlm) for one in candidates) else Failover
    busy = [candidates[found.index(one)] for one in listed(placement.busy_llm, placement.models)]
    routed = dict(zip(found, candidates, strict=True))
    rules, spending = placement.routes, placement.spending
    router = Router(routed, rules, placement.day_budget, spending) if rules else None
    openings = await _openings(routed, placement, load, stack)
    failover = kind(candidates, placement.hedge, busy[0] if busy else None, router, openings)
    stack.push_async_callback(failover.aclose)
    errors = await asyncio.gather(*(error_of(one.name, warm_llm(one.llm)) for one in candidates))
    for candidate, error in zip(candidates, errors, strict=True):
        if error is not None:
            log.warning("%s does not answer: %s; it is asked once it answers a probe", candidate.name, error)
            failover.miss(candidate)
    return failover


async def _openings(
    models: Mapping[str, Candidate], placement: Placement, load: Load, stack: AsyncExitStack
) -> Openings | None:
    """Load the model of the openings; one that does not answer is logged only. Raises ModelError."""
    given = placement.openings
    if not (given.phrases or given.model):
        return None
    opener: Candidate | None = None
    if one := given.model:
        opener = models.get(one) or await open_candidate(one, public_names([one])[0], placement, load, stack)
        if error := await error_of(opener.name, opener.llm.warm(opening_prompt(""))):
            log.warning("the model of the openings does not answer yet: %s", error)
    return Openings(given.phrases, opener, given.after_s)


def all_missing(failover: Failover) -> ModelError | None:
    """Return an error if none of the models answered when they were opened."""
    names = ", ".join(one.name for one in failover.candidates)
    return ModelError(names, failover.away) if failover.away else None


def public_names(found: Sequence[str]) -> list[str]:
    """Return a name for each model of a list, without addresses and folders, because clients read it."""
    names: list[str] = []
    for one in found:
        prefix, colon, argument = one.partition(":")
        model = argument.partition("#")[2] if "#" in argument else argument.partition("|")[0]
        name = f"{prefix}:{model.rpartition('/')[2]}" if colon else one
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names


async def open_candidate(
    spec: str, name: str, placement: Placement, load: Load, stack: AsyncExitStack
) -> Candidate:
    """Load one model, or open the client of its server. spec: or the name of a table. name: in traces.

    Raises ModelError. Cancelling stops the loading.
    """
    settings = placement.models.get(spec)
    if settings is None:
        llm = await load(spec)
        return Candidate(name, llm, prefills=getattr(llm, "prefills", False))
    if settings.remote:
        llm = open_server(name, settings, placement.spending)
        stack.push_async_callback(llm.aclose)
    else:
        llm = await load(settings.full_spec)
    prefills = getattr(llm, "prefills", False)
    return Candidate(name, llm, settings.first_token_s, prefills, settings.first_clause_s)


def open_server(name: str, settings: ModelSettings, spending: DaySpending | None = None) -> OpenAiChat:
    """Return the client of a chat server with a table of its own. Raises ModelError.

    spending: counts what its requests cost, None for no count.
    """
    url, _, model = settings.full_spec.partition(":")[2].partition("#")
    headers = {field: value.get_secret_value() for field, value in settings.headers.items()}
    options = ChatOptions(
        max(GIVE_UP_SECONDS, settings.first_token_s or 0.0),
        settings.between_tokens_s or BETWEEN_TOKENS_SECONDS,
        headers,
        settings.prefill,
        settings.thinks,
        settings.input_price,
        settings.output_price,
        call_s=settings.tool_call_s or TOOL_CALL_SECONDS,
        cached_price=settings.cached_price,
        spend=spending.add if spending else None,
        context=settings.context or CONTEXT_TOKENS,
    )
    key = settings.key(name) or NO_KEY  # the environment's key is not for every server in a list
    return OpenAiChat(url, model, key, settings.can_warm, extra=settings.fields(), name=name, options=options)


async def error_of(name: str, warming: Awaitable[None]) -> ModelError | None:
    """Wait until a model is warm, but not for long, and return what kept it from that.

    name: of the model. Cancelling cancels the warming.
    """
    try:
        async with asyncio.timeout(FIRST_TOKEN_SECONDS):
            await warming
    except TimeoutError:
        return ModelError(name, f"no token within {FIRST_TOKEN_SECONDS:g} s", "model_timeout")
    except ModelError as error:
        return error
    except Exception as error:  # of an adapter of another distribution
        return ModelError(name, f"{type(error).__name__}: {error}")
    return None
