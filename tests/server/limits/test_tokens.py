"""The limit of tokens of the language model per key and day: counted on each surface, and refused there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from support.callers.counted import ask, begin
from support.servers.chat_fake import MODEL, running
from support.servers.chat_kinds import KINDS
from support.servers.in_process import served_here
from support.serving import PATIENCE
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.limiting.allowance import Allowance, own_allowances
from rejoinder.agent.server.limiting.limits import Limits
from rejoinder.agent.server.operating.daily_use import HOUR_SECONDS, HOURS, DailyUse
from rejoinder.pipeline import Usage
from rejoinder.pipeline.context.tokens import ENTRY_TOKENS, estimated
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.reply import Reply

KEY = "rj_tokens"
OTHER = "rj_free"
QUESTION: Any = [{"role": "user", "content": "how is it"}]


def test_use_counts_for_24_hours() -> None:
    use = DailyUse()
    use.add("a", 3.0, 0.0)
    use.add("a", 4.0, HOUR_SECONDS)
    assert use.used("a", 2 * HOUR_SECONDS) == 7.0 and use.used("b", 0.0) == 0.0
    assert use.again("a", 2 * HOUR_SECONDS) == (HOURS - 2) * HOUR_SECONDS
    assert use.used("a", HOURS * HOUR_SECONDS) == 4.0
    assert use.used("a", (HOURS + 1) * HOUR_SECONDS) == 0.0 and use.again("a", 1e6) == HOUR_SECONDS


def test_tokens_are_counted_after_a_reply_and_asked_before_the_next() -> None:
    limits = Limits(Allowance(tokens=100), {"free": Allowance()})
    assert limits.meter("a") and limits.meter("") is None and limits.meter("free") is None
    limits.use_tokens("a", 99, 0.0)
    limits.use_tokens("free", 10**9, 0.0)
    assert begin(limits, "a", 1.0) is None and ask(limits, "a", 1.0) is None
    limits.use_tokens("a", 50, 2.0)
    for refused in (begin(limits, "a", 3.0), ask(limits, "a", 3.0), limits.out_of_tokens("a", 3.0)):
        assert (
            refused is not None and refused.reason == "this key has reached its limit of tokens in a day: 100"
        )
        assert refused.seconds == HOURS * HOUR_SECONDS - 3.0
    assert begin(limits, "free", 3.0) is None and ask(limits, "b", 3.0) is None
    assert ask(limits, "a", HOURS * HOUR_SECONDS) is None


def test_key_may_have_its_own_limit_of_tokens() -> None:
    own = own_allowances(f"{hashed(KEY)}:0:0:0:5000 {hashed(OTHER)}:1:9:60")
    assert own == {hashed(KEY): Allowance(tokens=5000), hashed(OTHER): Allowance(1, 9, 60)}


async def refused_call(port: int) -> str:
    headers = {"Authorization": f"Bearer {KEY}"}
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{port}/v1/pcm", proxy=None, additional_headers=headers)
    assert refused.value.response.status_code == 429
    assert int(refused.value.response.headers["Retry-After"]) > 60
    return refused.value.response.body.decode().strip()


REASON = "this key has reached its limit of tokens in a day: 10"


@pytest.mark.parametrize("stream", [True, False])
def test_text_requests_use_the_tokens_of_their_key(stream: bool) -> None:
    async def ask(client: AsyncOpenAI) -> None:
        answer: Any = await client.chat.completions.create(
            model="default", messages=QUESTION, stream=stream, max_completion_tokens=9
        )
        if stream:
            assert [chunk async for chunk in answer]

    async def both() -> None:
        keys = f"{hashed(KEY)}:0:0:0:10 {hashed(OTHER)}"
        async with served_here(api_keys=keys) as (_, port):
            url = f"http://127.0.0.1:{port}/v1"
            async with (
                AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0) as client,
                AsyncOpenAI(api_key=OTHER, base_url=url, max_retries=0) as free,
            ):
                await ask(client)  # 3 words of the question, and 9 of the answer
                with pytest.raises(openai.RateLimitError, match=REASON) as refused:
                    await ask(client)
                assert refused.value.code == "rate_limit_exceeded"
                await ask(free)
            assert await refused_call(port) == REASON

    asyncio.run(both())


def test_reply_that_reaches_the_limit_is_the_last_of_its_call() -> None:
    async def call() -> None:
        async with served_here(api_keys=hashed(KEY), key_tokens_per_day=10, llm="scripted:llm|Yes.") as (
            _,
            port,
        ):
            headers, url = {"Authorization": f"Bearer {KEY}"}, f"ws://127.0.0.1:{port}/v1/realtime"
            async with connect(url, proxy=None, additional_headers=headers) as socket:
                item = {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "no " * 20}],
                }
                await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
                await socket.send(json.dumps({"type": "response.create"}))
                events: list[dict[str, Any]] = []
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        events.append(json.loads(await socket.recv()))
                done = [event for event in events if event["type"] == "response.done"]
                assert [one["response"]["status"] for one in done] == ["completed"], "it is heard to its end"
                assert closed.value.rcvd and (closed.value.rcvd.code, closed.value.rcvd.reason) == (
                    1008,
                    REASON,
                )
            assert await refused_call(port) == REASON

    asyncio.run(call())


def test_the_count_of_the_models_server_is_the_one_that_counts() -> None:
    async def ask() -> None:
        async with running(KINDS[0]) as fake:
            keys, llm = f"{hashed(KEY)}:0:0:0:20", f"openai:{fake.url}#{MODEL}"
            async with served_here(api_keys=keys, llm=llm) as (_, port):
                url = f"http://127.0.0.1:{port}/v1"
                async with AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0) as client:
                    for _ in range(2):  # 12 tokens each; the pieces of an answer are fewer
                        await client.chat.completions.create(model="default", messages=QUESTION)
                    with pytest.raises(openai.RateLimitError, match="tokens in a day: 20"):
                        await client.chat.completions.create(model="default", messages=QUESTION)

    asyncio.run(ask())


def test_stopped_replies_count_though_their_server_has_not_told_their_tokens() -> None:
    """It tells them with the last piece, which never comes."""

    async def call() -> None:
        async with running(KINDS[0]) as fake:
            fake.scenario = "endless"
            settings = {"api_keys": f"{hashed(KEY)}:0:0:0:10", "llm": f"openai:{fake.url}#{MODEL}"}
            async with served_here(**settings) as (_, port), asyncio.timeout(PATIENCE):
                headers, url = {"Authorization": f"Bearer {KEY}"}, f"ws://127.0.0.1:{port}/v1/realtime"
                async with connect(url, proxy=None, additional_headers=headers) as socket:
                    content = [{"type": "input_text", "text": "Tell me the longest story that you know."}]
                    item = {"type": "message", "role": "user", "content": content}
                    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
                    response = {"output_modalities": ["text"]}
                    await socket.send(json.dumps({"type": "response.create", "response": response}))
                    while json.loads(await socket.recv())["type"] != "response.output_text.delta":
                        pass
                    await socket.send(json.dumps({"type": "response.cancel"}))
                    with pytest.raises(ConnectionClosed) as closed:
                        while True:
                            await socket.recv()
                    assert closed.value.rcvd and closed.value.rcvd.reason == REASON
                assert await refused_call(port) == REASON

    asyncio.run(call())


def test_requests_that_fail_before_their_first_piece_cost_nothing() -> None:
    reply = Reply(1, generation=Generation([{"role": "user", "content": "how is it"}]))
    assert reply.spent(None) == 0, "nothing is asked yet"
    reply.generation.begin()
    assert reply.spent(None) == estimated("how is it") + ENTRY_TOKENS
    assert reply.spent(Usage(3, 4)) == 7
    reply.outcome.fail(ConnectionError())
    assert reply.spent(None) == 0
