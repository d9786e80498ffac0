"""Latency as a waterfall for the terminal: parts that add up to the total."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.table import Table
from rich.text import Text

HEARD_END = "server hears the end"
"""Time from the bench's end of speech to the end by the server's VAD; negative if that is earlier."""
REST_LABEL = "network and client"
"""The part of the latency outside the server."""
WIDTH = 40
"""Columns of the bars."""
NARROW = 18
"""Columns of the bars beside the columns of single turns."""

Parts = Sequence[tuple[str, float]]
"""(name, milliseconds) in order of time."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of latencies in milliseconds; None if there are no latencies."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None


def summarise(latencies: Sequence[float]) -> Summary:
    """Return the statistics; percentiles are interpolated linearly between the nearest two."""
    if not latencies:
        return Summary(0, None, None, None, None)
    p50, p95, p99 = np.percentile(latencies, (50, 95, 99)).tolist()
    return Summary(len(latencies), p50, p95, p99, sum(latencies) / len(latencies))


def complete(server: Parts, total: float, heard_end: float | None) -> list[tuple[str, float]]:
    """Return parts that add up to the client's ``total``: the server's parts, then network and client.

    heard_end: how much later than the bench the server places the end of speech, in ms; None if unknown. The
    server's budget begins there, so the difference is neither its work nor the network's.
    """
    parts = [*([(HEARD_END, heard_end)] if heard_end is not None else []), *server]
    return [*parts, (REST_LABEL, total - sum(ms for _, ms in parts))]


def mean_parts(turns: Sequence[Parts]) -> list[tuple[str, float]]:
    """Return the mean of each part over all turns, in mean order of time; they add up to the mean total.

    A part that a turn lacks counts as 0 ms.
    """
    totals: dict[str, float] = {}
    places: dict[str, list[int]] = {}
    for turn in turns:
        for place, (name, ms) in enumerate(turn):
            totals[name] = totals.get(name, 0.0) + ms
            places.setdefault(name, []).append(len(turn) if name == REST_LABEL else place)
    order = sorted(totals, key=lambda name: (name == REST_LABEL, sum(places[name]) / len(places[name])))
    return [(name, totals[name] / len(turns)) for name in order]


def bars(parts: Parts, width: int = WIDTH) -> list[tuple[int, int]]:
    """Return (first column, columns) of each part's bar on a line of ``width`` columns.

    The bar of a negative part extends to the left. A part that is shorter than a column gets no bar.
    """
    ends = [0.0]
    for _, ms in parts:
        ends.append(ends[-1] + ms)
    low, high = min(ends), max(ends)
    scale = width / (high - low) if high - low > 1e-6 else 0.0
    columns = [round((end - low) * scale) for end in ends]
    return [(min(a, b), abs(b - a)) for a, b in pairwise(columns)]


def waterfall(parts: Parts, title: str, turns: Sequence[Parts] = ()) -> Table:
    """Return a table with a row and a bar for each part, and their sum.

    turns: the turns whose mean is ``parts``; the table shows each as a column.
    """
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_footer=True)
    table.add_column("", footer="last word to first sound", no_wrap=True)
    for number, turn in enumerate(turns, 1):
        table.add_column(f"turn {number}", justify="right", footer=ms(total(turn)), no_wrap=True)
    table.add_column("mean" if turns else "ms", justify="right", footer=ms(total(parts)), no_wrap=True)
    table.add_column("", no_wrap=True)
    for (name, value), (start, length) in zip(parts, bars(parts, NARROW if turns else WIDTH), strict=True):
        style = "cyan" if name not in (REST_LABEL, HEARD_END) else "bright_black"
        bar = Text(" " * start + ("█" * length or "▏"), style=style)
        table.add_row(name, *(ms(dict(turn).get(name)) for turn in turns), ms(value), bar)
    return table


def total(parts: Parts) -> float:
    """Return the sum of all parts in milliseconds."""
    return sum(ms for _, ms in parts)


def ms(value: float | None) -> str:
    """Return milliseconds for a table, a dash for none."""
    return "–" if value is None else f"{value:.0f}"


def summary_table(
    title: str, extra: Sequence[str], rows: Iterable[tuple[str, Sequence[str], Summary]]
) -> Table:
    """Return a table of statistics: a name, the ``extra`` columns, then p50, p95, p99 and mean in ms."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.add_column("", no_wrap=True)
    for name in (*extra, "p50", "p95", "p99", "mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, cells, summary in rows:
        table.add_row(name, *cells, *map(ms, (summary.p50, summary.p95, summary.p99, summary.mean)))
    return table
