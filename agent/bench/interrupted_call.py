"""Measures whether memory grows over a long call with interrupted turns, and the CPU of an idle call.

One call holds all turns. Each turn is the same short recording, sent as fast as the server reads it. Each
reply is cancelled after its first audio, so that leaks of cancelled replies add up.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from rejoinder.agent.bench.callers.caller import open_call
from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.cases.recordings import Recording
from rejoinder.agent.bench.process import processor_seconds, resident
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.socket import CallLost
from rejoinder.pipeline.audio.chunk import to_pcm

WARM_TURNS = 20
"""Turns after which caches, pools and threads exist; memory counts from there."""
AFTER_TURN_SECONDS = 2.0
"""Silence after the recording."""
PIECE_BYTES = 9600
"""Bytes of audio in one message."""
LONG_CALL_TURN_SECONDS = 60.0
"""Longest wait for a reply."""
SETTLE_SECONDS = 1.0
"""Time after the start of the idle call before the measurement."""
USUAL_SECONDS = 2.0
"""Preferred length of the recording."""


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """The results of a long call.

    silent: number of turns without a reply's audio. early, late: resident bytes of the server after
    ``WARM_TURNS`` and after all turns. idle: share of one core during the idle call.
    """

    turns: int
    silent: int
    early: int
    late: int
    idle: float

    @property
    def ratio(self) -> float:
        """Memory at the end as a multiple of the memory after ``WARM_TURNS``."""
        return self.late / self.early


def usual(recordings: list[Recording]) -> Recording:
    """Return the recording with a transcript whose length is nearest ``USUAL_SECONDS``."""
    return min(recordings, key=lambda one: (not one.text, abs(one.seconds - USUAL_SECONDS), one.path.name))


async def hold(
    url: str, process: int, recording: Recording, turns: int, idle_seconds: float, tell: Callable[[int], None]
) -> InterruptedCall:
    """Hold an idle call, then a call of many turns; pass each turn's number to ``tell``. Raises CallLost.

    Cancelling hangs up.
    """
    idle = await idle_share(url, process, idle_seconds)
    pcm = to_pcm(recording.load(CLIENT_RATE)) + bytes(2 * int(AFTER_TURN_SECONDS * CLIENT_RATE))
    early = late = silent = 0
    try:
        async with connect(url, compression=None, max_size=None, proxy=None) as socket:
            for turn in range(1, turns + 1):
                silent += not await interrupted_turn(socket, pcm, turn)
                late = resident(process)
                early = late if turn <= WARM_TURNS else early
                tell(turn)
    except (OSError, WebSocketException) as error:
        raise CallLost(f"the call broke: {error}") from error
    return InterruptedCall(turns, silent, early, late, idle)


async def idle_share(url: str, process: int, seconds: float) -> float:
    """Return the share of one core that the server uses for an idle call. Cancelling hangs up."""
    async with open_call(url) as caller:
        await caller.until(lambda: False, SETTLE_SECONDS)
        before, began = processor_seconds(process), time.perf_counter()
        await caller.until(lambda: False, seconds)
        return (processor_seconds(process) - before) / (time.perf_counter() - began)


async def interrupted_turn(socket: ClientConnection, pcm: bytes, turn: int) -> bool:
    """Send a recording and cancel the reply at its first audio. Return whether the reply had audio.

    Cancelling leaves the socket open. Raises CallLost if there is no reply.
    """
    try:
        async with asyncio.timeout(LONG_CALL_TURN_SECONDS):
            for start in range(0, len(pcm), PIECE_BYTES):
                audio = base64.b64encode(pcm[start : start + PIECE_BYTES]).decode("ascii")
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            first = await event_of(socket, "response.output_audio.delta", "response.done")
            if first["type"] == "response.done":
                return False
            await socket.send(json.dumps({"type": "response.cancel"}))
            await event_of(socket, "response.done")
            return True
    except TimeoutError:
        raise CallLost(f"turn {turn} was not answered within {LONG_CALL_TURN_SECONDS:.0f} s") from None


def table(result: InterruptedCall) -> Table:
    """Return the table for the terminal."""
    shown = Table(
        title="One long call", title_justify="left", title_style="bold", box=None, show_header=False
    )
    shown.add_row(f"memory after {WARM_TURNS} turns", f"{result.early / 1e6:.1f} MB")
    shown.add_row(f"memory after {result.turns} turns", f"{result.late / 1e6:.1f} MB")
    shown.add_row("ratio", f"{result.ratio:.3f}")
    shown.add_row("turns without a word", str(result.silent))
    shown.add_row("processor, idle call", f"{100 * result.idle:.1f} % of one core")
    return shown
