"""The settings of budgets: what calls may use of the language model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rejoinder.pipeline.budget import SPENT, WARN_AT, BudgetLimit, BudgetPlan, Budgets
from rejoinder.pipeline.day_tally import DayTally


class BudgetSettings(BaseModel):
    """The settings of budgets. There is none by default."""

    model_config = ConfigDict(extra="forbid")

    call_tokens: int = Field(0, ge=0, description="most tokens of prompts and answers in a call; 0: no limit")
    call_cost: float = Field(
        0.0, ge=0.0, description="most cost of a call, in the unit of the prices; 0: no limit"
    )
    key_tokens: int = Field(0, ge=0, description="most tokens of a key on one day; 0: no limit")
    key_cost: float = Field(0.0, ge=0.0, description="most cost of a key on one day; 0: no limit")
    address_tokens: int = Field(
        0, ge=0, description="most tokens of an address of clients on one day; 0: no limit"
    )
    address_cost: float = Field(
        0.0, ge=0.0, description="most cost of an address of clients on one day; 0: no limit"
    )
    day_tokens: int = Field(0, ge=0, description="most tokens of all calls on one day; 0: no limit")
    day_cost: float = Field(0.0, ge=0.0, description="most cost of all calls on one day; 0: no limit")
    warn_at: float = Field(WARN_AT, gt=0.0, le=1.0, description="share of a budget that leads to a warning")
    words: str = Field(SPENT, max_length=1_000, description="said before a call ends whose budget is spent")

    def costs(self) -> str:
        """Return the name of a limit of cost, "" if there is none."""
        costs = ("call_cost", "key_cost", "address_cost", "day_cost")
        return next((name for name in costs if getattr(self, name)), "")

    def budgets(self, tally: DayTally | None = None) -> Budgets | None:
        """Return the budgets of a server, None where no limit is set. tally: as for ``Budgets``."""
        call = BudgetLimit(self.call_tokens, self.call_cost)
        key = BudgetLimit(self.key_tokens, self.key_cost)
        day = BudgetLimit(self.day_tokens, self.day_cost)
        address = BudgetLimit(self.address_tokens, self.address_cost)
        if BudgetLimit() == call == key == day == address:
            return None
        return Budgets(BudgetPlan(call, key, day, self.warn_at, self.words.strip(), address), tally)
