"""Calls over a network with a delay, jitter and loss, and calls beside them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.serving import BLOCKED, LINE, PATIENCE, Server, serving
from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.bench.faults.bad_network import bad_network
from rejoinder.agent.wires import g711
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline.replying.playout import Playout, spread

pytestmark = pytest.mark.server
RATE = 8000
FRAME = RATE // 50
WORDS = " ".join([LINE.strip()] * 3)
LAW = "mulaw"
RESAMPLED = 0.03
"""Seconds of audio that the resampler to 8 kHz holds back: a client hears each clause that much later."""


class Caller:
    """A caller with a microphone and a loudspeaker, both in real time. The wires differ below."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.playout = Playout()
        self.seen: list[dict[str, Any]] = []
        self.words = self.clause = ""
        self._loud = 0

    def speak(self, seconds: float) -> None:
        self._loud = int(seconds * 50)

    async def microphone(self) -> None:
        """Send a frame of 20 ms each 20 ms, until cancelled."""
        loop, noise = asyncio.get_running_loop(), np.random.default_rng(0)
        due = loop.time()
        while True:
            loud, self._loud = self._loud > 0, max(0, self._loud - 1)
            pcm = noise.normal(0.0, 6000.0 * loud, FRAME).astype("<i2").tobytes()
            await self.send_audio(pcm)
            due += 0.02
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def loudspeaker(self) -> None:
        """Take what comes, until cancelled."""
        async for message in self.socket:
            self.take(message)

    async def until(self, holds: Callable[[], bool]) -> None:
        end = asyncio.get_running_loop().time() + 2 * PATIENCE
        while not holds():
            assert asyncio.get_running_loop().time() < end, (self.played(), self.seen[-20:])
            await asyncio.sleep(0.005)

    def count(self, type_: str) -> int:
        return sum(event["type"] == type_ for event in self.seen)

    def last(self, type_: str) -> dict[str, Any]:
        return next(event for event in reversed(self.seen) if event["type"] == type_)

    def played(self) -> float:
        return self.playout.played(asyncio.get_running_loop().time())

    def say(self, text: str) -> None:
        self.clause = text.strip()
        self.playout.begin(self.clause)

    def play(self, seconds: float) -> None:
        times = spread(self.clause, SECONDS_PER_CHARACTER * len(self.clause))
        self.playout.sent(seconds, asyncio.get_running_loop().time(), times)

    async def send_audio(self, pcm: bytes) -> None:
        raise NotImplementedError

    def take(self, message: str | bytes) -> None:
        raise NotImplementedError


class RealtimeCaller(Caller):
    """Over the Realtime protocol, in G.711: PCM at 24 kHz needs more than such a network carries."""

    async def send(self, type_: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": type_, **fields}))

    async def send_audio(self, pcm: bytes) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(g711.encode(pcm, LAW)).decode())

    def take(self, message: str | bytes) -> None:
        event = json.loads(message)
        self.seen.append(event)
        if event["type"] == "response.created":
            self.playout, self.words = Playout(), ""
        elif event["type"] == "response.output_audio_transcript.delta":
            self.words += event["delta"]
            self.say(event["delta"])
        elif event["type"] == "response.output_audio.delta":
            self.play(len(base64.b64decode(event["delta"])) / RATE)


class PcmCaller(Caller):
    """Over raw PCM: reports five times a second how much it has played."""

    async def send_audio(self, pcm: bytes) -> None:
        await self.socket.send(pcm)

    def take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self.play(len(message) / 2 / RATE)
            return
        event = json.loads(message)
        self.seen.append(event)
        if event["type"] == "reply_started":
            self.playout = Playout()
        elif event["type"] == "reply_text":
            self.say(event["text"])

    async def report(self) -> None:
        while True:
            if self.count("reply_started"):
                turn = self.last("reply_started")["turn"]
                ms = int(1000 * self.played())
                await self.socket.send(json.dumps({"type": "played", "turn": turn, "ms": ms}))
            await asyncio.sleep(0.2)


async def interrupt_over_realtime(port: int) -> None:
    """Interrupt an answer, report what was played, and hear the next answer to its end."""
    url = f"ws://127.0.0.1:{port}/v1/realtime?model=default"
    async with connect(url, proxy=None, open_timeout=PATIENCE) as socket, asyncio.TaskGroup() as tasks:
        caller = RealtimeCaller(socket)
        law = {"format": {"type": "audio/pcmu"}}
        audio = {"input": law, "output": law}
        await caller.send("session.update", session={"type": "realtime", "audio": audio})
        both = [tasks.create_task(caller.microphone()), tasks.create_task(caller.loudspeaker())]
        await caller.until(lambda: caller.count("session.updated") == 1)
        caller.speak(0.6)
        await caller.until(lambda: caller.played() > 2.0)
        begun = caller.count("input_audio_buffer.speech_started")
        caller.speak(1.0)
        await caller.until(lambda: caller.count("input_audio_buffer.speech_started") > begun)
        item = caller.last("response.output_audio.delta")["item_id"]
        ms, heard = int(1000 * caller.played()), caller.playout
        await caller.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=ms)
        await caller.until(lambda: caller.count("conversation.item.truncated") == 1)
        await caller.send("conversation.item.retrieve", item_id=item)
        await caller.until(lambda: caller.count("conversation.item.retrieved") == 1)
        kept = caller.last("conversation.item.retrieved")["item"]["content"][0]["transcript"]
        near = {heard.text(ms / 1000 + off) for off in (-RESAMPLED, 0.0, RESAMPLED)}
        assert kept in near, "the history is what was heard"
        assert 0 < len(kept) < len(WORDS)
        await caller.until(lambda: caller.words == WORDS and caller.count("response.done") == 2)
        assert not caller.count("error")
        for task in both:
            task.cancel()


async def interrupt_over_pcm(port: int) -> None:
    """Interrupt an answer; the server knows what was played when the caller spoke."""
    async with connect(
        f"ws://127.0.0.1:{port}/v1/pcm?rate={RATE}", proxy=None, open_timeout=PATIENCE
    ) as socket:
        caller = PcmCaller(socket)
        async with asyncio.TaskGroup() as tasks:
            work = (caller.microphone(), caller.loudspeaker(), caller.report())
            both = [tasks.create_task(each) for each in work]
            await caller.until(lambda: caller.count("ready") == 1)
            caller.speak(0.6)
            await caller.until(lambda: caller.played() > 2.0)
            before = caller.playout.text(caller.played() - 0.1)
            caller.speak(1.0)
            await caller.until(lambda: caller.count("reply_ended") == 1)
            after = caller.playout.text(caller.played())
            heard = caller.last("reply_ended")["heard"]
            assert before == heard[: len(before)] and heard == after[: len(heard)], (before, heard, after)
            assert len(heard) < len(WORDS)
            await caller.until(lambda: caller.count("reply_ended") == 2)
            assert caller.last("reply_ended")["heard"] == WORDS
            for task in both:
                task.cancel()


async def both_ways(server: Server) -> None:
    async with bad_network(server.port) as bad, asyncio.TaskGroup() as tasks:
        tasks.create_task(interrupt_over_realtime(bad))
        tasks.create_task(interrupt_over_pcm(bad))
        tasks.create_task(interrupt_over_realtime(server.port))


def test_calls_over_a_bad_network_and_beside_it(tmp_path: Path) -> None:
    with serving(tmp_path, llm=f"scripted:llm|{WORDS}") as server:
        asyncio.run(both_ways(server))
        server.wait_idle()
        said = server.log.read_text()
        assert "has not read" not in said
        assert not [line for line in said.splitlines() if "WARNING" in line and BLOCKED not in line]
