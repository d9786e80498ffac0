"""What the drivers in Python share: a microphone that never stops, and the report at the end.

A driver runs in its client's own environment, which has nothing of ours: the standard library has to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

BYTES_PER_MS = 48
"""16-bit samples at 24 kHz."""
FRAME_MS = 40
PATIENCE = 30.0 * float(os.environ.get("REJOINDER_TEST_PATIENCE", "1"))
LISTEN = 2.0
"""Seconds of the answer that are heard before a caller speaks over it."""


TOOL = {
    "type": "function",
    "name": "opened",
    "description": "Tells when a bridge was opened.",
    "parameters": {
        "type": "object",
        "properties": {"bridge": {"type": "string"}},
        "required": ["bridge"],
        "additionalProperties": False,
    },
}
"""What the second question is answered with, for clients that take a tool as it is on the wire."""
RESULT = "It was opened in 1883."


class Microphone:
    """Sends what is said, and silence in between, in real time, as a microphone does."""

    def __init__(self, send: Callable[[bytes], Awaitable[Any]]) -> None:
        self._send = send
        self._speech = b""

    def say(self, pcm: bytes) -> None:
        self._speech += pcm

    async def run(self) -> None:
        loop, size = asyncio.get_running_loop(), FRAME_MS * BYTES_PER_MS
        due = loop.time()
        while True:
            frame, self._speech = self._speech[:size], self._speech[size:]
            await self._send(frame.ljust(size, b"\0"))
            due += FRAME_MS / 1000
            await asyncio.sleep(max(0.0, due - loop.time()))


class Player:
    """Counts what a loudspeaker would have played: what came, and never more than time has passed."""

    def __init__(self) -> None:
        self.sent_ms = 0.0
        self._started: float | None = None

    def add(self, pcm: bytes) -> None:
        self._started = self._started or asyncio.get_running_loop().time()
        self.sent_ms += len(pcm) / BYTES_PER_MS

    def played_ms(self) -> int:
        if self._started is None:
            return 0
        elapsed = (asyncio.get_running_loop().time() - self._started) * 1000
        return int(min(elapsed, self.sent_ms))


def main(drive: Callable[[str, bytes, bytes], Awaitable[dict[str, Any]]]) -> None:
    """Run ``DRIVER URL QUESTION INTERRUPTION``: the server's http address, and two files of 24 kHz PCM."""
    url, question, interruption = sys.argv[1:]
    seen = asyncio.run(drive(url, Path(question).read_bytes(), Path(interruption).read_bytes()))
    print(json.dumps(seen))
