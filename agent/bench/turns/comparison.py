"""The table of eot-bench's measure: what each rule reaches within a budget of waiting or of cut-offs.

Its published results are in docs/lab/turns.md. They are of other recordings, so compare them by the rule
that uses no model: silence alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from rejoinder.agent.bench.turns.budgets import BUDGETS, Budget, Result, results
from rejoinder.agent.bench.turns.fit import Fit, fused_waits
from rejoinder.agent.bench.turns.held_out import held_out
from rejoinder.agent.bench.turns.rules import Observation
from rejoinder.agent.bench.turns.sweep import silence_sweep, sweep

FIGURE_KEYS = ("cut_off_at_mean_300ms", "cut_off_at_mean_600ms", "mean_ms_at_10pct", "mean_ms_at_5pct")
"""Names of the figures of ``BUDGETS`` in the last line of ``--json``."""


@dataclass(frozen=True, slots=True)
class BudgetComparison:
    """The results of each rule within each of ``BUDGETS``, None where no setting keeps to it.

    rows: by the name of the rule; the first is the pipeline's own over all cases.
    held_out: share cut off and mean wait in ms, where the settings were chosen on other speakers.
    """

    rows: dict[str, list[Result | None]]
    held_out: list[tuple[float, float] | None]


def compare(seen: Sequence[Observation], fits: Sequence[Fit]) -> BudgetComparison:
    """Return the results of the pipeline's rule and of silence alone, with all pauses and with each kind."""
    rule = fused_waits(seen, fits)
    rows = {"all pauses": list(results(sweep(seen, rule)))}
    for kind, natural in (("their own pauses", True), ("pauses put in", False)):
        chosen = [each for each in seen if each.resumes is None or each.natural == natural]
        if any(each.resumes for each in chosen):
            rows[kind] = list(results(sweep(chosen, rule)))
    if len(conditions := sorted({each.condition for each in seen})) > 1:
        for condition in conditions:
            chosen = [each for each in seen if each.condition == condition]
            if {each.resumes is None for each in chosen} == {True, False}:
                rows[condition] = list(results(sweep(chosen, rule)))
    rows["silence alone"] = list(results(silence_sweep(seen)))
    return BudgetComparison(rows, held_out(seen))


def table(found: BudgetComparison) -> Table:
    """Return the table for the terminal."""
    shown = Table(
        title="Within a budget: pauses cut off, or mean ms from the last speech to the end of the turn",
        title_justify="left",
        caption="In brackets: 90 % interval over speakers.",
        caption_justify="left",
    )
    shown.add_column("")
    for budget in BUDGETS:
        shown.add_column(str(budget), justify="right")
    for name, row in found.rows.items():
        shown.add_row(name, *(_cell(result) for result in row))
    shown.add_section()
    cells = ("–" if each is None else f"{each[0]:.1%} at {each[1]:.0f} ms" for each in found.held_out)
    shown.add_row("settings chosen on other speakers", *cells)
    return shown


def summary(found: BudgetComparison) -> dict[str, float | None]:
    """Return the four figures of the pipeline's rule: shares from 0 to 1, and milliseconds."""
    row = next(iter(found.rows.values()))
    return {
        key: None if result is None else round(_open_figure(result), 4)
        for key, result in zip(FIGURE_KEYS, row, strict=True)
    }


def report(found: BudgetComparison) -> dict[str, Any]:
    """Return the comparison as JSON data."""
    rows = {
        name: [None if result is None else asdict(result) for result in row]
        for name, row in found.rows.items()
    }
    return {"budgets": [asdict(budget) for budget in BUDGETS], "rows": rows, "held_out": found.held_out}


def _open_figure(result: Result) -> float:
    return result.cut_off if result.budget.cut_off is None else result.mean_ms


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    return f"{_shown(result.budget, _open_figure(result))} ({_range(result)})"


def _range(result: Result) -> str:
    low, high = (_shown(result.budget, figure) for figure in (result.low, result.high))
    return f"{low.removesuffix('%')}–{high}"


def _shown(budget: Budget, figure: float) -> str:
    return f"{figure:.1%}" if budget.cut_off is None else f"{figure:.0f}"
