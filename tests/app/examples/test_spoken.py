"""The agents of examples/ on real models: Whisper hears a synthesised caller, Piper speaks over a telephone.

The language model is a server of rules behind real HTTP, because the models here are too small to call tools.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import soxr
from support import speech
from support.callers.carriers import TwilioSim
from support.callers.phone import REAL, Caller, calling, plain, served, transcribed
from support.paths import EXAMPLES
from support.servers.chat import chat_server
from support.servers.clerk import AT
from support.servers.rules import Answer, Rules

from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.server.own_server import free_port
from rejoinder.pipeline import to_pcm

CALLER = "hibari:heart"
"""The voice of the caller; the agent's is Piper's."""
SECONDS = 60.0

pytestmark = pytest.mark.weights


def spoken(text: str, rate: int) -> bytes:
    """Return words in the caller's voice, 16-bit mono."""

    async def chunks() -> bytes:
        made = [chunk async for chunk in voice.speak(text)]
        heard = [soxr.resample(chunk.samples(), chunk.rate, rate) for chunk in made]
        return b"".join(to_pcm(samples) for samples in heard)

    with closing(speech.model(CALLER)) as voice:
        return asyncio.run(chunks())


def found(file: Path, query: str) -> list[Any]:
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as db:
        return db.execute(query).fetchall() if db.execute("SELECT 1 FROM sqlite_master").fetchone() else []


@asynccontextmanager
async def on_the_phone(
    example: str, rules: dict[str, Answer], query: str = ""
) -> AsyncIterator[tuple[Any, ...]]:
    """Call an example; yield the server, the caller and the language model once the greeting is heard."""
    model, port = Rules(rules), free_port()
    agent = load_agent(str(EXAMPLES / f"{example}.py"), again=True)
    with chat_server(port, model.answer):
        async with served(agent=agent, llm=f"openai:http://127.0.0.1:{port}/v1#rules", **REAL) as (
            program,
            url,
        ):
            async with calling(f"{url}{query}", TwilioSim()) as caller:
                await finished(caller)
                yield program, caller, model


async def finished(caller: Caller) -> None:
    """Wait until the agent has spoken, and is silent for a second."""
    before = caller.seconds_heard
    await caller.until(lambda: caller.seconds_heard > before + 0.3, SECONDS)
    heard = -1.0
    while caller.seconds_heard > heard:
        heard = caller.seconds_heard
        await asyncio.sleep(1.0)


async def hears(program: Any, caller: Caller, pattern: str) -> None:
    """Wait until the caller has heard these words. A busy machine may be late between two clauses."""
    async with asyncio.timeout(SECONDS):
        while True:
            heard = plain(await transcribed(program, bytes(caller.ear), caller.sim.rate))
            if re.search(pattern, heard):
                return
            await asyncio.sleep(1.0)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110 - a database has no event
            await asyncio.sleep(0.1)


def test_restaurant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESTAURANT_DB", str(tmp_path / "db"))
    words = spoken("I would like a table for four tomorrow at seven.", TwilioSim.rate)
    rules: dict[str, Answer] = {"table": ("book", {"people": 4, "at": AT, "name": "Anna"})}

    async def hold() -> None:
        async with on_the_phone("restaurant", rules) as (program, caller, _):
            caller.ear.clear()
            caller.say(words)
            await until(lambda: found(tmp_path / "db", "SELECT at, people, name FROM booking"))
            await finished(caller)
            # The recogniser writes the same sound as "24 November" and "the 24th of November".
            await hears(program, caller, r"24(th)?( of)? november")

    asyncio.run(hold())
    assert found(tmp_path / "db", "SELECT at, people, name FROM booking") == [(AT, 4, "Anna")]


def test_help_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKETS_DB", str(tmp_path / "tickets"))
    nothing, ticket, buy = (
        spoken(text, TwilioSim.rate)
        for text in (
            "My printer prints nothing at all.",
            "The lamp is still red. Please open a ticket.",
            "And I would like to buy a headset.",
        )
    )
    rules: dict[str, Answer] = {
        "headset": ("order_desk", {}),
        "ticket": ("tickets_open_ticket", {"problem": "the lamp is red"}),
        "printer": "Switch the printer off and on again.",
    }
    query = "SELECT number, problem, state FROM ticket"

    async def hold() -> None:
        async with on_the_phone("help_desk", rules) as (program, caller, model):
            caller.say(nothing)
            await finished(caller)
            assert any("green lamp" in prompt[-1]["content"] for prompt in model.prompts), (
                "the article is there"
            )
            caller.say(ticket)
            await until(lambda: found(tmp_path / "tickets", query))
            await finished(caller)
            caller.ear.clear()
            caller.say(buy)
            await finished(caller)
            await hears(program, caller, "desk.*what do you need")

    asyncio.run(hold())
    assert found(tmp_path / "tickets", query) == [(1, "the lamp is red", "open")]


def test_reminder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMINDER_DB", str(tmp_path / "db"))
    words = spoken("Yes, I will be there.", TwilioSim.rate)
    rules: dict[str, Answer] = {"yes|there": ("confirm", {"comes": True})}

    async def hold() -> None:
        async with on_the_phone("reminder", rules, "?name=Anna&at=2026-11-27T10:00") as (
            program,
            caller,
            model,
        ):
            await hears(program, caller, "anna.*november")
            caller.say(words)
            await finished(caller)
            await until(lambda: any(one["role"] == "tool" for one in model.prompts[-1]))

    asyncio.run(hold())
    assert found(tmp_path / "db", "SELECT * FROM reminder") == [("Anna", "2026-11-27T10:00:00", "confirmed")]
