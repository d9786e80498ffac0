"""Measures how late answers are to callers who talk while other clients attack the server.

Calls without and with an attack alternate, so that other work on the machine affects both alike. The models
are scripted: what is measured is the server. The attackers use the same processors as the server.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from rejoinder.agent.bench.attacks.attackers import ATTACKS, attack
from rejoinder.agent.bench.overhead.calls import subject
from rejoinder.agent.bench.overhead.subject import END_COMMAND
from rejoinder.agent.client.audio import CLIENT_RATE

FLAGS = {
    "llm": "scripted:llm|Yes.",
    "stt": "scripted:stt|what is the weather",
    "tts": "scripted:tts",
    "turn": "scripted:turn",
}
"""The models of the server."""
MOST_SESSIONS_MORE = 64
"""Lines of the server beyond those of the callers."""
CALLER = "127.0.1.{}"
"""The address of each caller. These and the attackers' are other than those of proxies, which do not wait."""
FRAME_MS = 20
"""Length of the callers' frames, in milliseconds."""
SPEECH_MS = 400
"""Length of the callers' words, in milliseconds."""
TALKER_PAUSE_SECONDS = 0.2
"""Silence of a caller after each answer, in seconds."""
LONGEST_TURN_SECONDS = 20.0
"""Longest wait for an answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """The times to the first audio of an answer, from the last frame of the words, in ms.

    attack: its name, "" for none. connections: those that the attackers made. lost: turns without an answer.
    connects: time until each call has begun, in ms.
    """

    attack: str
    connections: int
    times: Sequence[float]
    lost: int
    connects: Sequence[float] = ()

    def percentile(self, share: float) -> float | None:
        """Return a percentile of the times in ms, None without any. share: 50 for the median."""
        return float(np.percentile(self.times, share)) if self.times else None


def environment(callers: int) -> dict[str, str]:
    """Return the settings of a server for this number of callers. Only attackers have a limit of calls."""
    return {
        "REJOINDER_VAD": "scripted:vad",
        "REJOINDER_ADDRESS_CALLS_PER_MIN": "20",
        "REJOINDER_ADDRESS_EXEMPT": "127.0.1.0/24",
        "REJOINDER_MAX_CONNECTS_PER_S": "50",
        "REJOINDER_MAX_SESSIONS": str(callers + MOST_SESSIONS_MORE),
    }


async def measure(url: str, callers: int, turns: int, rounds: int, share: float = 1.0) -> list[Attacked]:
    """Hold calls without and with each attack, and return the times.

    callers: at a time. turns: of each caller in one round. rounds: of each attack. share: of the attackers.
    Cancelling ends the calls and the attackers.
    """
    found = []
    for name in ATTACKS:
        for _ in range(rounds):
            found.append(await hold_calls(url, callers, turns))
            async with subject(attack, name, urlsplit(url).port, share) as pipe:
                await asyncio.to_thread(pipe.recv)
                held = await hold_calls(url, callers, turns)
                pipe.send(END_COMMAND)
                made = await asyncio.to_thread(pipe.recv)
            found.append(replace(held, attack=name, connections=made))
    return found


async def hold_calls(url: str, callers: int, turns: int) -> Attacked:
    """Hold calls at the same time, and return the times of their answers. Cancelling ends them."""
    talked = await asyncio.gather(*(talk(url, turns, number) for number in range(callers)))
    times = [time for one, _ in talked for time in one]
    connects = [connect for _, connect in talked if connect]
    return Attacked("", 0, times, callers * turns - len(times), connects)


async def talk(url: str, turns: int, number: int) -> tuple[list[float], float]:
    """Hold one call; return the times of its answers and of its beginning in ms, 0.0 if it did not begin.

    number: of the caller, for its address. Cancelling ends the call.
    """
    loop = asyncio.get_running_loop()
    began, address = loop.time(), (CALLER.format(number + 1), 0)
    try:
        call = await connect(url, proxy=None, max_size=None, compression=None, local_addr=address)
    except (OSError, TimeoutError, WebSocketException):
        return [], 0.0
    connecting = 1000.0 * (loop.time() - began)
    async with call:
        talker = Talker(call)
        running = [asyncio.create_task(talker.feed()), asyncio.create_task(talker.listen())]
        try:
            async with asyncio.timeout(LONGEST_TURN_SECONDS * turns):
                for _ in range(turns):
                    await talker.turn()
        except (TimeoutError, ConnectionError):
            pass  # this turn and the further ones are lost
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return talker.times, connecting


class Talker:
    """One caller, who sends audio all the time. times: of the answers, in ms."""

    def __init__(self, call: ClientConnection) -> None:
        self.times: list[float] = []
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._loud = 0
        self._ended = 0.0
        self._audible: dict[str, float] = {}
        self._done: asyncio.Future[str] = self._loop.create_future()

    async def turn(self) -> None:
        """Say something, and hear the answer to its end. Cancelling stops waiting for it.

        Raises ConnectionError if the call is over.
        """
        self._loud = SPEECH_MS // FRAME_MS
        answer = await self._done
        self._done = self._loop.create_future()
        self.times.append(1000.0 * (self._audible[answer] - self._ended))
        await asyncio.sleep(TALKER_PAUSE_SECONDS)

    async def feed(self) -> None:
        """Send a frame every ``FRAME_MS``, until cancelled."""
        samples = CLIENT_RATE * FRAME_MS // 1000
        noise = np.random.default_rng(0).normal(0.0, 6000.0, samples).astype("<i2").tobytes()
        loud, quiet, due = append_event(noise), append_event(bytes(2 * samples)), self._loop.time()
        while True:
            await self._call.send(loud if self._loud else quiet)
            if self._loud:
                self._loud -= 1
                self._ended = self._loop.time()
            due += FRAME_MS / 1000
            await asyncio.sleep(due - self._loop.time())

    async def listen(self) -> None:
        """Take the server's events, until cancelled or the call is over."""
        with suppress(ConnectionClosed):
            async for message in self._call:
                event = json.loads(message)
                if event["type"] == "response.output_audio.delta":
                    self._audible.setdefault(event["response_id"], self._loop.time())
                elif event["type"] == "response.done" and event["response"]["id"] in self._audible:
                    if not self._done.done():
                        self._done.set_result(event["response"]["id"])
        if not self._done.done():
            self._done.set_exception(ConnectionError("the call is over"))


def append_event(pcm: bytes) -> str:
    """Return the Realtime event that appends audio."""
    return json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()})


def pooled(found: Sequence[Attacked]) -> list[tuple[Attacked, Attacked]]:
    """Return for each attack the calls without it, which alternated with it, and those with it."""
    pairs = list(zip(found[::2], found[1::2], strict=True))
    return [
        (
            _joined([one for one, other in pairs if other.attack == name]),
            _joined([other for _, other in pairs if other.attack == name]),
        )
        for name in dict.fromkeys(other.attack for _, other in pairs)
    ]


def _joined(rounds: Sequence[Attacked]) -> Attacked:
    times, connects = (
        [time for one in rounds for time in getattr(one, name)] for name in ("times", "connects")
    )
    connections, lost = (sum(getattr(one, name) for one in rounds) for name in ("connections", "lost"))
    return Attacked(rounds[0].attack, connections, times, lost, connects)


def table(pairs: Sequence[tuple[Attacked, Attacked]]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="First audio of an answer, ms", title_justify="left", title_style="bold", box=None)
    columns = ("attack", "connects", "turns", "lost", "p50", "p95", "without: p50", "p95", "p95 change")
    for column in columns:
        shown.add_column(column, justify="left" if column == "attack" else "right", no_wrap=True)
    for without, attacked in pairs:
        figures = [one.percentile(share) for one in (attacked, without) for share in (50, 95)]
        before, after = without.percentile(95), attacked.percentile(95)
        shown.add_row(
            attacked.attack,
            f"{attacked.connections:,}",
            str(len(attacked.times)),
            str(attacked.lost),
            *("-" if figure is None else f"{figure:.0f}" for figure in figures),
            f"{after / before - 1.0:+.0%}" if before and after else "-",
        )
    return shown


def report(pairs: Sequence[tuple[Attacked, Attacked]]) -> list[dict[str, Any]]:
    """Return the figures as JSON."""
    return [
        {
            "attack": attacked.attack,
            "connections": attacked.connections,
            **{
                f"{name}_{which}_ms": one.percentile(share)
                for which, one in (("with", attacked), ("without", without))
                for name, share in (("p50", 50), ("p95", 95), ("p99", 99))
            },
            "turns": len(attacked.times),
            "lost": attacked.lost,
            "lost_without": without.lost,
            "connect_p95_with_ms": float(np.percentile(attacked.connects, 95)) if attacked.connects else None,
            "connect_p95_without_ms": float(np.percentile(without.connects, 95))
            if without.connects
            else None,
        }
        for without, attacked in pairs
    ]
