"""One language model over several: the first that answers in time speaks, and the next one goes on for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from rejoinder.models.llm.failover.candidate import Candidate, Piece, Request
from rejoinder.models.llm.failover.continuation import fitted
from rejoinder.models.llm.failover.guessing import GUESS_CHECK_SECONDS, is_guess
from rejoinder.models.llm.failover.hedge_budget import HEDGE_SHARE, HedgeBudget
from rejoinder.models.llm.failover.leg import Leg
from rejoinder.models.llm.failover.probes import Probes
from rejoinder.models.llm.routing.opened import opened
from rejoinder.models.llm.routing.opening import Openings
from rejoinder.models.llm.routing.router import Router
from rejoinder.pipeline.context.tokens import TokenBudget
from rejoinder.pipeline.engines.deadline import current
from rejoinder.pipeline.errors import ModelError, PipelineError
from rejoinder.pipeline.interfaces import Message, MonitoredLlm, ToolCall, ToolLlm, Tools
from rejoinder.pipeline.upstream import upstream

log = logging.getLogger(__name__)

NONE_ANSWERS = "none of the language models answers"
"""Why a call is refused, or a server is not ready."""
REFUSALS = (400, 413, 422)
"""HTTP codes that blame the request. They say nothing about the model's health."""


@dataclass(slots=True)
class Tried:
    """What one answer has learnt of the models: which have failed, and which were late.

    tools: whether it needs a model with tools. chosen: the model that a rule has chosen, None for none.
    hurried: whether the last model gets no longer deadline than the others.
    """

    tools: bool = False
    chosen: Candidate | None = None
    hurried: bool = False
    dead: set[Candidate] = field(default_factory=set)
    late: set[Candidate] = field(default_factory=set)


class Failover:
    """Several language models that answer as one.

    The first one whose breaker is closed is asked. If no word has come at its deadline, or no clause at the
    next, the next one is asked too, and the first to answer speaks; the other request is closed. A model that
    fails in the middle of an answer is continued by the next one. A model that is on time is awaited
    directly: there is no task and no timer per token.

    candidates: in the order in which they are asked. hedge: share of the requests for which a late model is
    still waited for while the next one is asked; otherwise it is given up first. busy: the candidate that is
    asked first while the machine is busy, and last at all other times; None for the same order at all times.
    router: chooses who is asked before all others; None for no rules. openings: what is said while the
    answer is late; None for nothing.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        hedge: float = HEDGE_SHARE,
        busy: Candidate | None = None,
        router: Router | None = None,
        openings: Openings | None = None,
    ) -> None:
        self.candidates = list(candidates)
        self._budget = TokenBudget(self.candidates[0].llm)
        self._hedges = HedgeBudget(hedge)
        self._busy = busy
        self._router = router
        self._openings = openings
        self._probes = Probes()

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer. Raises ModelError if no model answers. Closing it closes all its requests."""
        return words_of(self.stream(spoken_request(messages)))

    def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer to a text request, at the lower priority of the models that have one."""
        return words_of(self.stream(Request(messages, urgent=False)))

    async def warm(self, messages: Sequence[Message]) -> None:
        """Warm the model that will be asked. Cancelling stops that. Raises ModelError."""
        chosen = self._router.foresee(messages) if self._router else None
        first = self._asked(Tried(chosen=chosen))[0]
        small = first.context < self.context_tokens
        await first.llm.warm(fitted(messages, first.context, None) if small else messages)

    @property
    def context_tokens(self) -> int:
        """The context of the first model. Another one gets what fits into its own."""
        return self.candidates[0].context

    def tokens_in(self, text: str) -> int:
        """Return the number of tokens in a text, as the first model counts them."""
        return self._budget.count(text)

    @property
    def failed(self) -> str:
        """Why none of the models can answer any more; "" while one may."""
        reasons = [one.llm.failed if isinstance(one.llm, MonitoredLlm) else "" for one in self.candidates]
        return reasons[0] if all(reasons) else ""

    @property
    def away(self) -> str:
        """That no model answers for the moment; "" while one of their breakers is closed."""
        return "" if any(one.breaker.closed for one in self.candidates) else NONE_ANSWERS

    def miss(self, candidate: Candidate) -> None:
        """Record that a model does not answer already at the start."""
        candidate.breaker.open()
        self._probes.begin(candidate)

    async def aclose(self) -> None:
        """Stop the probes. The models belong to who made them. Cancelling may leave a probe running."""
        await self._probes.aclose()

    # --- one answer -------------------------------------------------------------------------------------

    def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Stream the answer to a request, or the rest of one that is begun. Raises ModelError.

        Closing it closes all its requests.
        """
        request = replace(request, context=self.context_tokens)
        chosen = self._router.choose(request) if self._router else None
        answer = partial(self._answer, chosen)
        openings = self._openings
        if openings and openings.fit(request):
            first = self._asked(Tried(tools=request.tools is not None, chosen=chosen))[:1]
            if openings.model not in first:
                return opened(answer, request, openings)
        return answer(request)

    async def _answer(self, chosen: Candidate | None, request: Request) -> AsyncGenerator[Piece, None]:
        given, called = request.given, False
        tried = Tried(tools=request.tools is not None, chosen=chosen)
        if request.hedges:
            self._hedges.asked()
        while True:
            try:
                leg = await self._first(self._asked(tried), request, tried)
            except PipelineError:
                if not self._left(tried):
                    raise
                tried.hurried = True  # the others have open breakers, and the caller has waited already
                continue
            try:
                if (reply := upstream.get()) is not None:
                    others = (one for one in self.candidates if one is not self._busy)
                    usual = chosen or next(others, self.candidates[0])
                    reply.answers(leg.candidate.name, leg.first_word, leg.candidate is not usual)
                pieces: list[Piece] | None = leg.ready
                while pieces is not None:
                    for piece in pieces:
                        called = called or isinstance(piece, ToolCall)
                        given += piece if isinstance(piece, str) else ""
                        yield piece
                    pieces = await leg.read()
                return
            except PipelineError as error:
                self._failed(leg.candidate, error, tried)
                if called or not self._left(tried):
                    raise
                _happened("failovers", "failed_over")
                request = replace(request, given=given)
            finally:
                await leg.aclose()

    def _asked(self, tried: Tried) -> list[Candidate]:
        """Return the models to ask, in order: those with an open breaker only if no other is left."""
        frugal = is_frugal()

        def rank(one: Candidate) -> tuple[bool, bool, bool]:
            return one in tried.late, one is not tried.chosen, (one is self._busy) != frugal

        left = sorted(self._left(tried), key=rank)
        return [one for one in left if one.breaker.closed] or left

    def _left(self, tried: Tried) -> list[Candidate]:
        usable = (one for one in self.candidates if not tried.tools or isinstance(one.llm, ToolLlm))
        return [one for one in usable if one not in tried.dead]

    async def _first(self, candidates: Sequence[Candidate], request: Request, tried: Tried) -> Leg:
        """Return the request that answers first, and close the others. Raises ModelError if none answers."""
        candidate, *rest = candidates
        loop, is_last = asyncio.get_running_loop(), not rest and not tried.hurried
        following: asyncio.Task[Leg] | None = None
        timer: asyncio.TimerHandle

        def await_clause() -> None:
            nonlocal timer
            if following is None and not timer.cancelled():
                timer.cancel()
                timer = loop.call_at(leg.late_at(is_last), pass_deadline)
            elif following is not None and following.done() and not _has_won(following):
                limit.reschedule(leg.late_at(not tried.hurried))

        def pass_deadline() -> None:
            nonlocal timer, following
            if is_guess():  # no caller waits yet
                timer = loop.call_later(GUESS_CHECK_SECONDS, pass_deadline)
            elif rest and request.hedges and self._hedges.spend():
                self._late(candidate, leg, tried)
                _happened("hedges", "hedged")
                following = asyncio.create_task(self._first(rest, request, tried), name="hedge")
                following.add_done_callback(end_wait)
            else:
                limit.reschedule(loop.time())

        def end_wait(race: asyncio.Task[Leg]) -> None:
            due = loop.time() if _has_won(race) else max(loop.time(), leg.late_at(not tried.hurried))
            with suppress(RuntimeError):  # the first model has answered in the same step of the loop
                limit.reschedule(due)

        leg = Leg(candidate, request, await_clause)
        timer = loop.call_at(leg.late_at(is_last), pass_deadline)
        try:
            async with asyncio.timeout(None) as limit:
                await leg.begin()
            if following is None:
                candidate.breaker.succeeded(loop.time())
            leg.measure()
            await _discard(following)
            return leg
        except (TimeoutError, PipelineError) as error:
            failure = error
        except BaseException:
            await leg.aclose()
            await _discard(following)
            raise
        finally:
            timer.cancel()
        await leg.aclose()
        if isinstance(failure, TimeoutError):
            leg.measure()
            failure = ModelError(candidate.name, leg.lateness(), "model_timeout")
        if not _has_won(following):
            self._failed(candidate, failure, tried, counts=following is None and not leg.is_empty)
        if following is None:
            if not rest:
                raise failure
            _happened("failovers", "failed_over")
            return await self._first(rest, request, tried)
        try:
            return await following
        except BaseException:
            await _discard(following)
            raise

    # --- health -----------------------------------------------------------------------------------------

    def _late(self, candidate: Candidate, leg: Leg, tried: Tried) -> None:
        tried.late.add(candidate)
        log.info("%s: %s: asking the next model, too", candidate.name, leg.lateness())
        self._bad(candidate)

    def _failed(self, candidate: Candidate, error: PipelineError, tried: Tried, counts: bool = True) -> None:
        tried.dead.add(candidate)
        log.warning("a language model failed: %s", error)
        refused = getattr(error.__cause__, "status_code", None) in REFUSALS
        if counts and not refused and getattr(error, "code", "") != "context_length_exceeded":
            self._bad(candidate)

    def _bad(self, candidate: Candidate) -> None:
        if candidate.breaker.failed(asyncio.get_running_loop().time()):
            log.warning("%s is not asked any more until it answers a probe", candidate.name)
            self._probes.begin(candidate)


class ToolFailover(Failover):
    """Several language models, of which at least one can call tools. Only those get a request with tools."""

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, then the tool calls of the model that wrote it. Otherwise like ``reply``.

        Two models never work on such a request at the same time.
        """
        return self.stream(spoken_request(messages, tools))


async def words_of(pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[str, None]:
    """Yield the words of an answer, without its tool calls. Closing the generator closes ``pieces``."""
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, str):
                yield piece


def _has_won(following: asyncio.Task[Leg] | None) -> bool:
    done = following is not None and following.done() and not following.cancelled()
    return done and following is not None and following.exception() is None


async def _discard(following: asyncio.Task[Leg] | None) -> None:
    """Close the requests that lost, and the connection that one of them may have won meanwhile."""
    if following is None:
        return
    following.cancel()
    await asyncio.wait([following])
    if _has_won(following):
        await following.result().aclose()


def is_frugal() -> bool:
    """Return whether the machine is so busy that a smaller model has to do."""
    deadline = current.get()
    return deadline is not None and deadline.frugal


def spoken_request(messages: Sequence[Message], tools: Tools | None = None) -> Request:
    """Return the request of the current reply; without one, nothing is spoken."""
    reply = upstream.get()
    if reply is None:
        return Request(messages, tools)
    return Request(messages, tools, spoken=reply.spoken, needs_words=reply.needs_words)


def _happened(what: str, mark: str) -> None:
    if (reply := upstream.get()) is not None:
        reply.happened(what, mark, asyncio.get_running_loop().time())
