"""The bench of routing: which joins have a fault, and a large model behind a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest

from rejoinder.agent.bench.routing.chat import DelayedChat
from rejoinder.agent.bench.routing.join import join_faults
from rejoinder.agent.bench.routing.live import PHRASES
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.openai import ChatOptions, OpenAiChat
from rejoinder.models.llm.routing.router import Router
from rejoinder.models.llm.routing.settings import Routing
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message
from rejoinder.pipeline.replying.upstream import Upstream, upstream
from rejoinder.pipeline.trace import Trace

OPENING = "Sure, let me look at that,"
ASKED = [Message(role="user", content="Why is the sky blue?")]


@pytest.mark.parametrize(
    ("rest", "faults"),
    [
        ("the sky is blue because of the air.", []),
        ("it scatters blue light.", []),
        ("I think it is the air.", []),
        ("NASA says that it is the air.", []),
        ("Boston is cold, and Boston is far.", []),
        ("", ["nothing follows"]),
        ("Hello! the sky is blue.", ["greets again", "new sentence"]),
        ("of course it is blue.", ["greets again"]),
        ("let me look at that, it is blue.", ["greets again", "repeats"]),
        ("look at that blue sky.", ["repeats"]),
        ("The sky is blue.", ["new sentence"]),
        (", the sky is blue.", ["mark first"]),
        ("to continue my message, it is blue.", ["mentions the break"]),
    ],
)
def test_faults_of_a_join(rest: str, faults: list[str]) -> None:
    assert join_faults(OPENING, rest) == faults


def test_a_capital_letter_behind_a_full_stop_is_no_fault() -> None:
    assert join_faults("Let me see.", "The sky is blue.") == []


@asynccontextmanager
async def large(delay_s: float, **more: float) -> AsyncGenerator[tuple[DelayedChat, OpenAiChat], None]:
    chat = DelayedChat(ScriptedLlm(["it is the air."], first=0.0, each=0.0), delay_s)
    server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    model = OpenAiChat(f"http://{host}:{port}/v1", "big", options=ChatOptions(**more))
    try:
        yield chat, model
    finally:
        await model.aclose()
        server.close()


async def said(router: Router, speaks: bool) -> str:
    report = Upstream(Trace(1, ASKED[0]["content"]))
    report.speaks = speaks
    upstream.set(report)
    async with aclosing(router.reply(ASKED)) as words:
        return "".join([word async for word in words])


def test_a_late_answer_is_opened_and_all_requests_are_counted() -> None:
    async def scenario() -> None:
        async with large(0.4, input_price=1e6, output_price=2e6) as (chat, model):
            router = Router({"big": Candidate("big", model)}, Routing(openings=PHRASES, opening_after_s=0.1))
            assert (await said(router, speaks=False)).strip() == "it is the air."
            once = chat.read
            assert (chat.requests, chat.written, chat.joins) == (1, 4, [])
            assert model.spent == once + 2.0 * chat.written
            assert (await said(router, speaks=True)).strip() == f"{PHRASES[0]} it is the air."
            await chat.idle.wait()
            assert chat.joins == [[PHRASES[0], "it is the air. "]]
            assert chat.requests == 3 and chat.read > 3 * once, "the one that was closed, too"
            await router.aclose()

    asyncio.run(scenario())
