"""Chooses which of several language models is asked first, by rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import inf

from rejoinder.models.llm.failover.candidate import Candidate, Request
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.choosing import Facts, choose, foreseen, word_count
from rejoinder.models.llm.routing.difficulty import judge
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.pipeline.interfaces import Message, ToolLlm
from rejoinder.pipeline.upstream import upstream


class Router:
    """The rules of one list of language models. The others take over as without rules.

    A rule whose model cannot call tools does not match a request with tools. models: by their names in the
    rules. day_budget: what a day may cost, 0 for no budget. now: returns the local time.
    """

    def __init__(
        self,
        models: Mapping[str, Candidate],
        rules: Sequence[RouteSettings],
        day_budget: float = 0.0,
        spending: DaySpending | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._models = models
        self._rules = [rule for rule in enumerate(rules, 1) if rule[1].model in models]
        self._day_budget = day_budget
        self._spending = spending or DaySpending()
        self._now = now
        self._without_tools = frozenset(name for name in models if not self._calls_tools(name))

    def choose(self, request: Request) -> Candidate | None:
        """Return the model that is asked first, None where no rule matches, and note it in the trace."""
        with_tools = request.tools is not None
        rules = [one for one in self._rules if not (with_tools and one[1].model in self._without_tools)]
        choice = choose(self._asked(request.messages, with_tools), rules)
        if (reply := upstream.get()) is not None:
            reply.routed(choice.model, choice.reason)
        return self._models.get(choice.model)

    def foresee(self, messages: Sequence[Message]) -> Candidate | None:
        """Return the model that will probably be asked for a prompt, None where no rule matches.

        Whether the reply may call tools, the language and the key are not known by then.
        """
        some_call = len(self._without_tools) < len(self._models)  # otherwise no request has tools
        blind = self._without_tools if some_call else frozenset()
        return self._models.get(foreseen(self._asked(messages), [rule for _, rule in self._rules], blind))

    def _calls_tools(self, name: str) -> bool:
        return isinstance(self._models[name].llm, ToolLlm)

    def _asked(self, messages: Sequence[Message], tools: bool = False) -> Facts:
        reply, now = upstream.get(), self._now()
        said = (reply.said if reply else "") or _last_words(messages)
        return Facts(
            word_count(said),
            tools,
            reply.language if reply else "",
            60 * now.hour + now.minute,
            reply.load if reply else 0.0,
            self._day_budget - self._spending.cost if self._day_budget else inf,
            reply.key if reply else "",
            judge(said),
            reply.budget.share if reply and reply.budget else 0.0,
        )


def _last_words(messages: Sequence[Message]) -> str:
    return next((one["content"] for one in reversed(messages) if one["role"] == "user"), "")
