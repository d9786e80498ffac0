"""Calls in a terminal: a table of those that run, one of earlier ones, and one call with its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rejoinder.agent.bench.reports.waterfall import waterfall
from rejoinder.agent.logs import one_line

FLOORS = {
    "nobody": ("quiet", "dim"),
    "user": ("caller", "cyan"),
    "pause": ("caller …", "cyan"),
    "agent": ("agent", "green"),
    "overlap": ("both", "yellow"),
}
"""How the state of the floor is shown, and its colour."""
SHOWN_WORDS = 60
"""Most characters of the words that a caller speaks now."""


def lists_view(live: Sequence[Mapping[str, Any]], earlier: Iterable[Mapping[str, Any]]) -> Group:
    """Return the running calls, the waterfall of the last answer among them, and earlier calls."""
    running = _table("Running now", "wire caller floor time turns answered says")
    for call in live:
        budget = sum(part["ms"] for part in call["budget"])
        floor, colour = FLOORS.get(call["floor"], (call["floor"], ""))
        running.add_row(
            *(_plain(call["wire"]), _plain(call["caller"])),
            Text(one_line(floor) if call["live"] else "ends", colour),
            *(Text(_seconds(call["seconds"])), Text(str(call["turn_count"]))),
            *(Text(_ms(budget)), _plain(call["partial"][-SHOWN_WORDS:], "dim")),
        )
    shown: list[RenderableType] = [running if live else Text("No call is running.", "dim")]
    if newest := next((call for call in live if call["budget"]), None):
        parts = [(one_line(part["name"]), part["ms"]) for part in newest["budget"]]
        shown += ["", waterfall(parts, f"Last answer of {one_line(newest['wire'])}")]
    ended = _table("Earlier calls", "began wire caller time turns slowest errors id")
    for call in earlier:
        began = datetime.fromtimestamp(call["began"]).strftime("%m-%d %H:%M:%S")
        ended.add_row(
            *(Text(began), _plain(call["wire"]), _plain(call["caller"])),
            *(Text(_seconds(call["seconds"])), Text(str(call["turn_count"])), Text(_ms(call["slowest_ms"]))),
            Text(str(call["errors"] or ""), "red"),
            _plain(call["id"], "dim"),
        )
    if ended.row_count:
        shown += ["", ended]
    return Group(*shown)


def call_view(call: Mapping[str, Any]) -> Group:
    """Return one call: its facts, and each turn with its words, tools, waterfall and queue waits."""
    facts = [call["call"], call["wire"], call["caller"], _seconds(call["seconds"]), call["reason"]]
    lines: list[RenderableType] = [Text(" · ".join(one_line(fact) for fact in facts if fact), "bold")]
    for turn in call["turns"]:
        lines += ["", *_turn(turn)]
    return Group(*lines)


def _turn(turn: Mapping[str, Any]) -> list[RenderableType]:
    about = [f"turn {turn['number']}", f"at {turn['at']:.1f} s", *turn["models"], turn["status"]]
    lines: list[RenderableType] = [_plain(" · ".join(filter(None, about)), "dim")]
    if turn["said"]:
        lines.append(Text.assemble(("caller ", "cyan"), _plain(turn["said"])))
    if turn["text"]:
        lines.append(Text.assemble(("agent  ", "green"), *heard_and_cut(turn["text"], turn["heard"])))
    refused = f"refused by the guard: {turn['refused']}" if turn.get("refused") else ""
    lines += [_plain(f"       {note}", "red") for note in (turn["error"], refused) if note]
    for tool in turn["tools"]:
        ran = "runs" if tool["ms"] is None else _ms(tool["ms"])
        words = f"{tool['name']}({tool['arguments']}) → {tool['result']}"
        lines.append(Text.assemble(("tool   ", "yellow"), _plain(words, "red" * tool["failed"]), f"  {ran}"))
    if turn["budget"]:
        lines.append(waterfall([(one_line(part["name"]), part["ms"]) for part in turn["budget"]], ""))
    if turn["waits"]:
        waits = ", ".join(f"{one_line(wait['name'])} {_ms(wait['ms'])}" for wait in turn["waits"])
        lines.append(Text(f"waited in queues: {waits}", "dim"))
    return lines


def heard_and_cut(text: str, heard: str | None) -> tuple[Text, Text]:
    """Return the words of an answer that were heard, and those that were cut off."""
    if heard is None or heard.strip() == text.strip():
        return _plain(text), Text("")
    rest = text[len(heard) :] if text.startswith(heard) else text
    return _plain(f"{heard.rstrip()} ".lstrip()), _plain(rest.strip(), "dim strike")


def _plain(text: str, style: str = "") -> Text:
    """Return text of callers, models and tools without what a terminal would carry out."""
    return Text(one_line(text.replace("\n", " ")), style)


def _table(title: str, columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns.split():  # an id is needed whole
        table.add_column(column, overflow="fold", no_wrap=column not in ("caller", "says"))
    return table


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _ms(ms: float) -> str:
    return f"{ms:.0f} ms" if ms else ""
