"""``rejoinder serve my_agent.py --reload``: the next call gets the changed agent, a mistake ends no call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.callers.phone import served
from websockets.asyncio.client import connect

from rejoinder.agent.app.loading import load_agent
from rejoinder.pipeline import Message

pytestmark = pytest.mark.server

AGENT = """
from contextlib import asynccontextmanager
from rejoinder import Agent
from words import GREETING

@asynccontextmanager
async def lifespan():
    yield
    print("closed", GREETING, flush=True)

agent = Agent(greeting=GREETING, lifespan=lifespan)

@agent.on_end
async def note(call):
    pass
"""


TOOL = """
@agent.tool
def book() -> None:
    'Book a table.'
"""


class Parrot:
    """A language model without tools."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield messages[-1]["content"]

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


async def greeting(url: str) -> str:
    async with connect(url, proxy=None) as socket, asyncio.timeout(20):
        while True:
            frame = await socket.recv()
            event = json.loads(frame) if isinstance(frame, str) else {}
            if event.get("type") == "reply_text":
                return str(event["text"])


def test_next_call_gets_the_changed_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    file, words = tmp_path / "my_own_agent.py", tmp_path / "words.py"
    file.write_text(AGENT)
    words.write_text("GREETING = 'First.'")

    async def until_logged(text: str) -> None:
        async with asyncio.timeout(20):
            while text not in caplog.text:  # noqa: ASYNC110 - a log line has no event
                await asyncio.sleep(0.02)
        caplog.clear()

    async def hold() -> None:
        async with served(agent=load_agent(str(file)), followed=str(file), log_level="info") as (
            program,
            url,
        ):
            pcm = url.replace("phone", "pcm")
            await until_logged("loaded anew when a file")
            assert await greeting(pcm) == "First."
            async with connect(pcm, proxy=None) as held:
                words.write_text("GREETING = 'Second.'")
                await until_logged("the next call gets it")
                assert await greeting(pcm) == "Second."
                assert "closed First." not in capsys.readouterr().out, "its call goes on"
                assert json.loads(await held.recv())["type"] == "ready"
            words.write_text("GREETING = ")
            await until_logged("words.py, line 1: SyntaxError: invalid syntax")
            assert program.models is not None
            program.models = replace(program.models, llm=Parrot())
            file.write_text(AGENT + TOOL)
            words.write_text("GREETING = 'Third.'")
            await until_logged("this language model cannot call tools")
            assert await greeting(pcm) == "Second."

    with caplog.at_level("INFO"):
        asyncio.run(hold())
    assert capsys.readouterr().out == "closed First.\nclosed Second.\n"
