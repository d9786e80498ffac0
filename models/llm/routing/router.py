"""One language model over several: rules choose who answers each question, and the others take over."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import date, datetime

from rejoinder.models.llm.failover.candidate import Candidate, Piece, Request
from rejoinder.models.llm.failover.failover import Failover, ToolFailover, words_of
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.choosing import Asked, Choice, choose, foreseen, word_count
from rejoinder.models.llm.routing.difficulty import judge
from rejoinder.models.llm.routing.opened import opened
from rejoinder.models.llm.routing.opening import ask_opening, opening_prompt, phrase
from rejoinder.models.llm.routing.settings import Routing
from rejoinder.models.specs import language_of
from rejoinder.pipeline.interfaces import Message, ToolCall, ToolLlm, Tools
from rejoinder.pipeline.replying.upstream import upstream


class Router:
    """Several language models that answer as one; rules choose the first one that is asked.

    The others take over in the order of their list, as in ``Failover``. A rule whose model cannot call tools
    does not match a request with tools.

    models: the models by their names in the rules, in order; the first one answers where no rule matches.
    opener: the small model of the openings, None for phrases only. spending: of the routers that share a
    day's budget, None for one of its own. now: returns the local time.
    """

    def __init__(
        self,
        models: Mapping[str, Candidate],
        routing: Routing,
        hedge: bool = True,
        opener: Candidate | None = None,
        spending: DaySpending | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._routing = routing
        self._opener = opener
        self._now = now
        self._default = next(iter(models))
        several = ToolFailover if any(isinstance(one.llm, ToolLlm) for one in models.values()) else Failover
        self.routes = {
            name: several([one, *(other for other in models.values() if other is not one)], hedge)
            for name, one in models.items()
        }
        self._rules = list(enumerate(routing.routes, 1))
        self._spending = spending or DaySpending()

    @property
    def failover(self) -> Failover:
        """The models in the order of their list."""
        return self.routes[self._default]

    @property
    def candidates(self) -> list[Candidate]:
        """All models, and the one of the openings."""
        listed = self.failover.candidates
        return listed if self._opener is None or self._opener in listed else [*listed, self._opener]

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer. Raises ModelError if no model answers. Closing it closes all its requests."""
        return words_of(self._stream(Request(messages)))

    def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer to a text request, without an opening. Otherwise like ``reply``."""
        return words_of(self._stream(Request(messages, urgent=False)))

    async def warm(self, messages: Sequence[Message]) -> None:
        """Warm the model that will be asked for these words, as far as that is known by now.

        Cancelling stops that. Raises ModelError.
        """
        named = self.routes if isinstance(self, ToolLlm) else ()  # otherwise there are no requests with tools
        blind = frozenset(name for name in named if not self._calls_tools(name))
        model = foreseen(self._asked(Request(messages)), self._routing.routes, self._default, blind)
        await self.routes[model].warm(messages)

    @property
    def failed(self) -> str:
        """Why none of the models can answer any more; "" while one may."""
        return self.failover.failed

    async def aclose(self) -> None:
        """Stop the probes. The models belong to who made them. Cancelling may leave a probe running."""
        for failover in self.routes.values():
            await failover.aclose()

    # --- one answer -------------------------------------------------------------------------------------

    def choose(self, request: Request) -> Choice:
        """Return the model that answers a request, and why."""
        tools = request.tools is not None
        rules = [rule for rule in self._rules if not tools or self._calls_tools(rule[1].model)]
        return choose(self._asked(request), rules, self._default)

    def _calls_tools(self, name: str) -> bool:
        return isinstance(self.routes[name].candidates[0].llm, ToolLlm)

    def _asked(self, request: Request) -> Asked:
        reply, now = upstream.get(), self._now()
        said = (reply.said if reply else "") or _last_words(request.messages)
        return Asked(
            word_count(said),
            request.tools is not None,
            language_of(reply.recogniser) if reply else "",
            60 * now.hour + now.minute,
            reply.load if reply else 0.0,
            self._cost_left(now.date()) if self._routing.day_budget else float("inf"),
            reply.key if reply else "",
            judge(said),
        )

    def _cost_left(self, today: date) -> float:
        models = self.failover.candidates
        opener = [self._opener] if self._opener and self._opener not in models else []
        spent = sum(getattr(one.llm, "spent", 0.0) for one in [*models, *opener])
        return self._routing.day_budget - self._spending.report(self, spent, today)

    async def _stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        choice = self.choose(request)
        if self._rules and (reply := upstream.get()) is not None:
            reply.routed(choice.model, choice.reason, choice.passing)
        failover = self.routes[choice.model]
        if self._opens(failover, request):
            pieces = opened(failover, request, lambda: self._opening(request), self._routing.opening_after_s)
        else:
            pieces = failover.stream(request)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _opens(self, failover: Failover, request: Request) -> bool:
        """Return whether a late answer gets an opening: a spoken one to the caller's words.

        The result of a tool is not among these, and neither is a cue, which stands in parentheses. A request
        that may be sent only once has no opening, because what follows one is a second request.
        """
        reply, last = upstream.get(), request.messages[-1:]
        to_caller = bool(last) and last[0]["role"] == "user" and not last[0]["content"].startswith("(")
        spoken = reply is not None and reply.speaks and to_caller and request.hedges
        return spoken and self._routing.opens and failover.candidates[0] is not self._opener

    async def _opening(self, request: Request) -> tuple[str, str]:
        if self._opener and (said := await ask_opening(self._opener.llm, _last_words(request.messages))):
            return said, self._opener.name
        return phrase(self._routing.openings, request.messages), ""

    async def warm_opener(self) -> None:
        """Warm the small model of the openings, if there is one. Cancelling stops that. Raises ModelError."""
        if self._opener:
            await self._opener.llm.warm(opening_prompt(""))


class ToolRouter(Router):
    """A router of which at least one model can call tools."""

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer, then the tool calls of the model that wrote it. Otherwise like ``reply``."""
        return self._stream(Request(messages, tools))


def _last_words(messages: Sequence[Message]) -> str:
    return next((one["content"] for one in reversed(messages) if one["role"] == "user"), "")
