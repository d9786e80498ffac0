"""Measures Rejoinder and a Pipecat bot on the same recordings, in turn, and prints one table.

``make bench-peers`` installs the bot's environment and runs this. docs/lab/pipecat.md says what is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from rejoinder.agent.bench.latency import ANSWERED
from rejoinder.agent.machine import occasion
from rejoinder.agent.server.own_server import held_port, own_process

BOT = Path(__file__).with_name("pipecat_bot.py")
"""The Pipecat bot."""
START_SECONDS = 120.0
"""Longest wait for the bot, in seconds."""
STOP_SECONDS = 10.0
"""Time in which the bot may end by itself, in seconds."""
CLIP_SECONDS = 40.0
"""Most seconds of one recording, with its answer."""
HEAD = ("server", "answered", "cut off", "p50", "p95", "p99", "mean")
"""Columns of the table."""


async def bench(clips: int, url: str = "") -> list[dict[str, Any]]:
    """Run ``rejoinder bench`` and return the results of its clips. url: of a running server, "" for our own.

    Raises RuntimeError if it fails, and TimeoutError. Cancelling ends it.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        flags = ["--clips", str(clips), "--json", str(report), *(["--url", url] if url else [])]
        command = [sys.executable, "-m", "rejoinder", "bench", *flags]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(START_SECONDS + clips * CLIP_SECONDS):
                status = await process.wait()
        finally:
            await _end(process)
        if status:
            raise RuntimeError(f"{' '.join(command)} failed with status {status}")
        found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["clips"]
        return found


@asynccontextmanager
async def pipecat(python: Path) -> AsyncIterator[str]:
    """Serve the bot, and our language model for it; yield the bot's address. Cancelling ends both.

    python: of the bot's environment. Raises RuntimeError or TimeoutError if the bot does not begin.
    """
    async with own_process({}) as (model, _):
        with held_port() as port:
            address = f"http://{urlsplit(model).netloc}/v1"
            command = [str(python), str(BOT), "--port", str(port), "--llm-url", address]
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
            try:
                await _until_listening(process, port)
                yield f"ws://127.0.0.1:{port}/v1/realtime"
            finally:
                await _end(process)


async def _until_listening(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(START_SECONDS):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.2)
            else:
                writer.close()
                return
    raise RuntimeError(f"the bot ended with status {process.returncode}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def row(name: str, results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cells of one server. results: of ``bench``, of all rounds."""
    times = [each["latency_ms"] for each in results if each["outcome"] == ANSWERED]
    figures = [*np.percentile(times, (50, 95, 99)), np.mean(times)] if times else []
    cut_off = sum(each["cut_off"] for each in results)
    return [name, f"{len(times)} of {len(results)}", str(cut_off), *(f"{figure:.0f}" for figure in figures)]


async def main() -> None:
    """Measure each server in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="Python of the bot's environment")
    parser.add_argument("--clips", type=int, default=44, help="recordings in each round")
    parser.add_argument("--rounds", type=int, default=1, help="times that each server is measured")
    parser.add_argument("--version", default="", help="version of pipecat-ai, for the table")
    arguments = parser.parse_args()
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(arguments.rounds):
        ours += await bench(arguments.clips)
        async with pipecat(arguments.python) as url:
            theirs += await bench(arguments.clips, url)
    about = occasion()
    rows = [list(HEAD), ["---"] * len(HEAD), row("Rejoinder", ours)]
    rows.append(row(f"pipecat-ai {arguments.version}".strip(), theirs))
    print("\n".join(f"| {' | '.join(cells)} |" for cells in rows))
    machine = about["machine"]
    print(f"\n{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}, {about['date']}")
    print(about["command"])


if __name__ == "__main__":
    asyncio.run(main())
