"""Shows a call live on a terminal, or as plain lines elsewhere; afterwards, where its latency went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rejoinder.agent.bench.callers.caller import LiveCaller
from rejoinder.agent.bench.callers.script import Exchange
from rejoinder.agent.bench.callers.turns import HeardReply, HeardTurn
from rejoinder.agent.bench.reports.waterfall import mean_parts, ms, summarise, waterfall
from rejoinder.agent.client.audio import CLIENT_RATE

REFRESH_SECONDS = 0.1
"""Interval between two updates."""


@asynccontextmanager
async def show(caller: LiveCaller, console: Console) -> AsyncIterator[None]:
    """Show a call while the block runs. Cancelling the block prints the last lines."""
    if console.is_terminal:
        with Live(
            console=console, refresh_per_second=1 / REFRESH_SECONDS, get_renderable=lambda: view(caller)
        ):
            yield
        return
    printed: set[str] = set()
    printing = asyncio.create_task(_print(caller, console, printed), name="print")
    try:
        yield
    finally:
        printing.cancel()
        await asyncio.wait([printing])
        _print_settled(caller, console, printed, everything=True)


def print_latency(exchanges: Sequence[Exchange], console: Console) -> None:
    """Print the waterfall of the exchanges, if the server sent its traces, and the percentiles."""
    if turns := [one.parts for one in exchanges if one.parts]:
        console.print(waterfall(mean_parts(turns), "Where the time goes, in ms", turns))
    latencies = [one.latency_ms for one in exchanges if one.latency_ms is not None]
    summary = summarise(latencies)
    console.print(
        f"last word to first sound: p50 {ms(summary.p50)} ms, p95 {ms(summary.p95)} ms; "
        f"{len(latencies)} of {len(exchanges)} turns answered",
        highlight=False,
    )


def view(caller: LiveCaller) -> RenderableType:
    """Return the current state of a call: who speaks, the caller's transcripts, and the replies."""
    now = caller.now
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for at, entry in _entries(caller):
        if isinstance(entry, HeardTurn):
            text = Text(entry.text.strip() or "…", style="" if entry.final else "dim italic")
            table.add_row(f"{at / CLIENT_RATE:.1f} s", Text("caller", style="blue"), text)
        else:
            table.add_row(
                f"{at / CLIENT_RATE:.1f} s", Text("agent", style="green"), _reply_text(caller, entry)
            )
    speaking = Text.assemble(
        (f"{now / CLIENT_RATE:5.1f} s   ", "dim"),
        _lamp("caller", "blue", caller.microphone.speaking),
        "   ",
        _lamp("agent", "green", caller.player.playing(now)),
    )
    return Group(speaking, Text(), table, Text())


def _entries(caller: LiveCaller) -> list[tuple[int, HeardTurn | HeardReply]]:
    entries: list[tuple[int, HeardTurn | HeardReply]] = [(turn.begin, turn) for turn in caller.turns]
    entries += [(reply.created, reply) for reply in caller.replies]
    return sorted(entries, key=lambda entry: entry[0])


def _reply_text(caller: LiveCaller, reply: HeardReply) -> Text:
    if _is_mute(reply):
        return Text("stopped before a sound", style="dim")
    heard = caller.heard(reply)
    rest = reply.text[len(heard) :]
    return Text.assemble((heard.lstrip(), ""), (rest, "dim strike" if reply.cut else "dim"))


def _is_mute(reply: HeardReply) -> bool:
    return bool(reply.status) and not reply.text.strip()


def _lamp(name: str, colour: str, lit: bool) -> Text:
    return Text(f"{'●' if lit else '○'} {name}", style=f"bold {colour}" if lit else "dim")


async def _print(caller: LiveCaller, console: Console, printed: set[str]) -> None:
    while True:
        _print_settled(caller, console, printed)
        await asyncio.sleep(REFRESH_SECONDS)


def _print_settled(caller: LiveCaller, console: Console, printed: set[str], everything: bool = False) -> None:
    """Print the entries that are final and not in ``printed``; with ``everything``, also unfinished ones."""
    for at, entry in _entries(caller):
        name = entry.item if isinstance(entry, HeardTurn) else entry.id
        if name in printed or not (everything or _is_settled(caller, entry)):
            continue
        printed.add(name)
        who = "caller" if isinstance(entry, HeardTurn) else "agent"
        line = f"{at / CLIENT_RATE:5.1f} s  {who:<6}  {_plain(caller, entry)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _is_settled(caller: LiveCaller, entry: HeardTurn | HeardReply) -> bool:
    if isinstance(entry, HeardTurn):
        return entry.final
    end = caller.player.last_sample(entry.item)
    return bool(entry.status) and (end is None or caller.now >= end)


def _plain(caller: LiveCaller, entry: HeardTurn | HeardReply) -> str:
    if isinstance(entry, HeardTurn):
        return entry.text.strip()
    if _is_mute(entry):
        return "[stopped before a sound]"
    heard = caller.heard(entry)
    lost = entry.text[len(heard) :].strip()
    return f"{heard.strip()} [cut, unheard: {lost}]" if entry.cut else entry.text.strip()
