"""The restaurant of examples/ books the same table on every wire; the language model is a chat server."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.browsing import CHROMIUM, browsing, noise, run, silence
from support.callers.asterisk import calling as asterisk_calling
from support.callers.carriers import SIMS, TwilioSim
from support.callers.home_assistant import asked, home
from support.callers.phone import calling, served
from support.paths import ROOT
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.servers.clerk import AT, WANTED, Clerk
from support.servers.tools import calls
from support.sound_card import FakeSounddevice
from websockets.asyncio.client import connect
from wyoming.asr import Transcript
from wyoming.handle import Handled

import rejoinder.client
from rejoinder import Agent
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.cli.talk import run as talk
from rejoinder.agent.client import devices
from rejoinder.agent.config import load

pytestmark = pytest.mark.server

TOLD = "Done: Booked for 4 on Tuesday, 24 November at 19:00."


@contextmanager
def restaurant(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: Clerk | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the flags of a server with the restaurant's agent. given: the language model's clerk."""
    monkeypatch.setenv("RESTAURANT_DB", str(folder / "db.sqlite"))
    clerk, port = given or Clerk(), unused_port()
    flags = {"llm": f"openai:http://127.0.0.1:{port}/v1#clerk", "stt": f"scripted:stt|{WANTED}"}
    with chat_server(port, clerk.answer):
        yield flags


def bookings(folder: Path) -> list[tuple[str, int, str, str]]:
    with closing(sqlite3.connect(folder / "db.sqlite")) as db:
        return db.execute("SELECT at, people, name, phone FROM booking").fetchall()


def loud(rate: int, seconds: float = 1.0) -> bytes:
    heard = np.random.default_rng(0).normal(0.0, 6000.0, int(rate * seconds))
    return heard.astype("<i2").tobytes()


def silence_and(sound: bytes) -> bytes:
    """Return a sound after silence in which the greeting is heard."""
    return bytes(len(sound) * 3) + sound


async def in_real_time(send: Any, pcm: bytes, *rate: int) -> None:
    """Send 20 ms of audio every 20 ms, and silence behind it. rate: a further argument of ``send``."""
    size, loop = (rate[0] if rate else 16000) // 50 * 2, asyncio.get_running_loop()
    began = loop.time()
    for tick in itertools.count():
        await send(pcm[tick * size : (tick + 1) * size].ljust(size, b"\x00"), *rate)
        await asyncio.sleep(max(0.0, began + 0.02 * (tick + 1) - loop.time()))


def booked_once(folder: Path) -> None:
    """The model may be asked twice, where the end of a turn was guessed too early; the tool runs once."""
    assert [row[:3] for row in bookings(folder)] == [(AT, 4, "Anna")]


def the_agent() -> Agent:
    return load_agent(str(ROOT / "examples" / "restaurant.py"))


@pytest.mark.parametrize("carrier", SIMS, ids=lambda sim: sim.name)
def test_telephone(carrier: type[TwilioSim], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold() -> None:
        with restaurant(tmp_path, monkeypatch) as flags:
            async with served(agent=the_agent(), **flags) as (_, url):
                sim = carrier()
                async with calling(url, sim) as caller:
                    await caller.until(lambda: caller.seconds_heard > 1.0)  # the greeting
                    await asyncio.sleep(1.0)
                    greeted = caller.seconds_heard
                    caller.say(loud(sim.rate))
                    await caller.until(lambda: bookings(tmp_path))
                    await caller.until(lambda: caller.seconds_heard > greeted + 1.0)
            booked_once(tmp_path)

    asyncio.run(hold())


def test_audiosocket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold() -> None:
        port = unused_port()
        with restaurant(tmp_path, monkeypatch) as flags:
            async with served(agent=the_agent(), audiosocket_port=port, **flags):
                async with asterisk_calling(port) as caller:
                    await caller.until(lambda: caller.seconds_heard > 1.0)  # the greeting
                    await asyncio.sleep(1.0)
                    caller.say(loud(8000))
                    await caller.until(lambda: bookings(tmp_path))
            booked_once(tmp_path)

    asyncio.run(hold())


def test_raw_pcm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold() -> None:
        with restaurant(tmp_path, monkeypatch) as flags:
            async with served(agent=the_agent(), **flags) as (_, url):
                async with connect(url.replace("phone", "pcm"), proxy=None) as socket:
                    said: list[str] = []
                    sending = asyncio.create_task(in_real_time(socket.send, silence_and(loud(16000))))
                    async with asyncio.timeout(60):
                        while TOLD not in said:
                            frame = await socket.recv()
                            event = json.loads(frame) if isinstance(frame, str) else {}
                            said += [event["heard"]] if event.get("type") == "reply_ended" else []
                    sending.cancel()
            booked_once(tmp_path)

    asyncio.run(hold())


def test_home_assistant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold() -> None:
        with restaurant(tmp_path, monkeypatch) as flags:
            async with home(agent=the_agent(), **flags) as (_, port):
                *_, handled, _ = await asked(port, Transcript(text=WANTED).event(), last="handled-stop")
                assert Handled.from_event(handled).text == TOLD
            booked_once(tmp_path)

    asyncio.run(hold())


class Both(Clerk):
    """Calls ``weather``, which is the client's, in the same reply as ``book``."""

    def answer(self, handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        results = [one["content"] for one in messages if one["role"] == "tool"]
        if results:
            self.prompts.append(messages)
            said = f"Done: {' and '.join(results)}"
            handler.wfile.write(token(said) + token(None, "stop") + b"data: [DONE]\n\n")
            return
        self.asked += 1
        arguments = json.dumps({"people": 4, "at": AT, "name": "Anna"})
        book = {"name": "book", "arguments": arguments}
        weather = {"name": "weather", "arguments": "{}"}
        handler.wfile.write(
            calls(
                {"index": 0, "id": "call_1", "type": "function", "function": book},
                {"index": 1, "id": "call_2", "type": "function", "function": weather},
            )
        )


def test_one_reply_calls_a_tool_of_the_agent_and_one_of_the_realtime_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}

    async def hold() -> None:
        with restaurant(tmp_path, monkeypatch, Both()) as flags:
            async with served(agent=the_agent(), **flags) as (_, url):
                async with rejoinder.client.connect(url.replace("phone", "realtime")) as call:
                    await call.update(tools=[weather])
                    sending = asyncio.create_task(
                        in_real_time(call.send_audio, silence_and(loud(24000)), 24000)
                    )
                    said, called = [], []
                    async with asyncio.timeout(60):
                        async for event in call:
                            if isinstance(event, rejoinder.client.ToolCalled):
                                called.append(event.name)
                                await call.return_result(event.call, "sunny")
                            if isinstance(event, rejoinder.client.AgentSaid):
                                said.append(event.text)
                            if said and said[-1].startswith("Done"):
                                break
                    sending.cancel()
            assert called == ["weather"], "the agent's own is not the client's"
            assert said == ["Mario's, how can I help?", f"{TOLD[:-1]}. and sunny"]
            booked_once(tmp_path)

    asyncio.run(hold())


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        microphone = [silence(3.0), noise(1.0), silence(30.0)]
        with restaurant(tmp_path, monkeypatch) as flags:
            async with (
                served(agent=the_agent(), **flags) as (_, url),
                browsing(tmp_path, microphone) as (page, _),
            ):
                await page.goto(url.replace("ws:", "http:").replace("/v1/phone", "/"))
                await page.click("#talk")
                await page.wait_for_selector(".entry.agent .text:has-text('Done: Booked for 4')")
            booked_once(tmp_path)

    run(act())


def test_microphone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headset = FakeSounddevice()
    headset.patience = 150
    headset.least = 100  # more than the greeting
    monkeypatch.setattr(devices, "import_module", lambda name: headset)
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    console = Console(file=io.StringIO(), width=200)
    with restaurant(tmp_path, monkeypatch) as flags:
        models = {**flags, "tts": "scripted:tts", "turn": ""}
        own = {"agent": str(ROOT / "examples" / "restaurant.py"), **models}
        talk(own, load(models)[0], "Headset", None, console)
        booked_once(tmp_path)
