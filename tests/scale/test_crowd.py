"""Two thousand sessions at the same time, at four server processes with scripted models."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from support.serving import PATIENCE

from rejoinder.agent.bench.overhead.calls import subject
from rejoinder.agent.bench.overhead.subject import ANSWER, END_COMMAND, serve_watched
from rejoinder.agent.client.call import Call, connect
from rejoinder.agent.client.events import AgentSaid, ReplyDone
from rejoinder.agent.server.descriptors import allow_sockets

pytestmark = pytest.mark.scale
PROCESSES = 4
SESSIONS = 2_000
AT_ONCE = 250
"""Answers at the same time."""


async def answer(call: Call) -> tuple[str, str]:
    """Return how the reply to a request ended, and its words."""
    await call.add_text("How is the weather?")
    await call.respond()
    said = ""
    async for event in call:
        match event:
            case AgentSaid(text=text):
                said = text
            case ReplyDone(status=status):
                return status, said
    return call.over, said


def test_two_thousand_sessions_are_connected_and_all_are_answered() -> None:
    async def hold() -> list[tuple[str, str]]:
        allow_sockets()
        turns = asyncio.Semaphore(AT_ONCE)
        async with AsyncExitStack() as stack, asyncio.timeout(6 * PATIENCE):
            pipes = [
                await stack.enter_async_context(subject(serve_watched, "scripted:vad", 0, {}))
                for _ in range(PROCESSES)
            ]
            for pipe in pipes:
                stack.callback(pipe.send, END_COMMAND)
            urls = [f"ws://127.0.0.1:{await asyncio.to_thread(pipe.recv)}" for pipe in pipes]
            calls = [
                await stack.enter_async_context(connect(urls[one % PROCESSES])) for one in range(SESSIONS)
            ]

            async def one(call: Call) -> tuple[str, str]:
                async with turns:
                    return await answer(call)

            return await asyncio.gather(*(one(call) for call in calls))

    assert asyncio.run(hold()) == [("completed", ANSWER)] * SESSIONS
