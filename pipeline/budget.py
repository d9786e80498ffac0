"""What calls may use of the language model, in tokens and money: a call, and a key and all calls in a day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rejoinder.pipeline.events import BudgetReached

WARN_AT = 0.8
"""Default for the share of a budget at which a warning is given."""
SPENT = "I'm sorry, I have to end our call here. Goodbye."
"""Said before a call ends because its budget is spent, where nothing else is configured."""


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """What may be used. tokens: of prompts and answers. cost: in the unit of the prices. 0: no limit."""

    tokens: int = 0
    cost: float = 0.0


@dataclass(slots=True)
class Used:
    """What was used."""

    tokens: int = 0
    cost: float = 0.0

    def share(self, limit: BudgetLimit) -> float:
        """Return which share of a limit this is, 0 without a limit."""
        tokens = self.tokens / limit.tokens if limit.tokens else 0.0
        return max(tokens, self.cost / limit.cost if limit.cost else 0.0)


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """The budgets of a server. call: of one call. key: of a key on one day. day: of all calls on one day.

    warn_at: share of a budget at which a warning is given. words: said before a call ends whose budget is
    spent, "" for nothing.
    """

    call: BudgetLimit = BudgetLimit()
    key: BudgetLimit = BudgetLimit()
    day: BudgetLimit = BudgetLimit()
    warn_at: float = WARN_AT
    words: str = SPENT


class Budgets:
    """The budgets of the calls of one process, and what was used today.

    today: returns the date; each new one begins again with nothing used.
    """

    def __init__(self, plan: BudgetPlan, today: Callable[[], object] = lambda: None) -> None:
        self.plan = plan
        self._today = today
        self._date = today()
        self._all = Used()
        self._keys: dict[str, Used] = {}

    def of(self, key: str) -> CallBudget:
        """Return the budget of a new call. key: the owner of the call, "" for all without a key."""
        return CallBudget(self, key)

    def today(self, key: str) -> tuple[Used, Used]:
        """Return what a key and what all calls have used today."""
        if (now := self._today()) != self._date:
            self._date, self._all, self._keys = now, Used(), {}
        return self._keys.setdefault(key, Used()), self._all


@dataclass(slots=True)
class CallBudget:
    """The budget of one call, and what it has used. parted: whether the last words were begun."""

    budgets: Budgets
    key: str
    used: Used = field(default_factory=Used)
    parted: bool = False
    _reached: dict[str, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What is said before the call ends."""
        return self.budgets.plan.words

    @property
    def share(self) -> float:
        """Which share is used of the budget that is closest to its end."""
        return max(self._shares().values())

    @property
    def over(self) -> bool:
        """Whether one of the budgets is spent, or was when the last words were begun."""
        return self.parted or self.share >= 1.0

    @property
    def spent(self) -> str:
        """The name of a budget that is spent: call, key or day; "" for none."""
        return next((scope for scope, share in self._shares().items() if share >= 1.0), "")

    def spend(self, tokens: int, cost: float = 0.0) -> None:
        """Count what a request has used."""
        for used in (self.used, *self.budgets.today(self.key)):
            used.tokens += tokens
            used.cost += cost

    def news(self) -> list[BudgetReached]:
        """Return the budgets that have reached their warning or their end, each once for each of both."""
        found, plan = [], self.budgets.plan
        for scope, share in self._shares().items():
            level = 1.0 if share >= 1.0 else plan.warn_at if share >= plan.warn_at else 0.0
            if level > self._reached.get(scope, 0.0):
                self._reached[scope] = level
                found.append(BudgetReached(scope, round(share, 3), level == 1.0))
        return found

    def _shares(self) -> dict[str, float]:
        plan, (key, day) = self.budgets.plan, self.budgets.today(self.key)
        return {"call": self.used.share(plan.call), "key": key.share(plan.key), "day": day.share(plan.day)}
