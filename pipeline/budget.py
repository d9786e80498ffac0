"""What calls may use of the language model, in tokens and money: each, and on a day by key or address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rejoinder.pipeline.day_tally import DayTally
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
    """The budgets of a server.

    call: of one call. key, address, day: of a key, of an address of clients, and of all calls, on one day.
    warn_at: share of a budget at which a warning is given. words: said before a call ends whose budget is
    spent, "" for nothing.
    """

    call: BudgetLimit = BudgetLimit()
    key: BudgetLimit = BudgetLimit()
    day: BudgetLimit = BudgetLimit()
    warn_at: float = WARN_AT
    words: str = SPENT
    address: BudgetLimit = BudgetLimit()


class Budgets:
    """The budgets of the calls of one process.

    tally: counts what is used on a day, which other servers may share; None for one without days.
    """

    def __init__(self, plan: BudgetPlan, tally: DayTally | None = None) -> None:
        self.plan = plan
        self._tally = tally or DayTally()

    def of(self, key: str, address: str = "") -> CallBudget:
        """Return the budget of a new call.

        key: the owner of the call, "" for all without a key. address: of the client, "" for one that does not
        count.
        """
        scopes = {"key": f"key {key}", "day": "all calls"}
        if address and self.plan.address != BudgetLimit():
            scopes["address"] = f"address {address}"
        for scope, name in scopes.items():
            self._tally.follow((f"{kind} of {name}" for kind in ("tokens", "cost")), scope == "address")
        return CallBudget(self, scopes)

    def spend(self, scopes: Mapping[str, str], tokens: int, cost: float) -> None:
        """Count what a call has used. scopes: kind and name of each."""
        for scope, name in scopes.items():
            self._tally.add(f"tokens of {name}", tokens, scope == "address")
            self._tally.add(f"cost of {name}", cost, scope == "address")

    def today(self, name: str) -> Used:
        """Return what was used today in a scope."""
        return Used(int(self._tally.total(f"tokens of {name}")), self._tally.total(f"cost of {name}"))


@dataclass(slots=True)
class CallBudget:
    """The budget of one call, and what it has used.

    scopes: kind and name of what it counts for. parted: whether the last words were begun.
    """

    budgets: Budgets
    scopes: Mapping[str, str]
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
        """The kind of a budget that is spent: call, key, day or address; "" for none."""
        return next((scope for scope, share in self._shares().items() if share >= 1.0), "")

    def spend(self, tokens: int, cost: float = 0.0) -> None:
        """Count what a request has used."""
        self.used.tokens += tokens
        self.used.cost += cost
        self.budgets.spend(self.scopes, tokens, cost)

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
        plan = self.budgets.plan
        limits = {"key": plan.key, "day": plan.day, "address": plan.address}
        shares = {scope: self.budgets.today(name).share(limits[scope]) for scope, name in self.scopes.items()}
        return {"call": self.used.share(plan.call), **shares}
