"""An agent behind ``/v1/chat/completions``, asked with OpenAI's own client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from support.callers.phone import served

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call

pytestmark = pytest.mark.server

ASKED: list[Any] = [{"role": "user", "content": "A table for four."}]


def booking() -> tuple[Agent, list[int]]:
    agent, booked = Agent("You take bookings."), list[int]()

    @agent.tool
    async def book(call: Call, people: int) -> str:
        """Book a table."""
        assert call.info.wire == "text"
        booked.append(people)
        await call.say("Holding it.")
        return "booked"

    return agent, booked


def asked(agent: Agent, **more: Any) -> list[str]:
    """Return the names of the models, the whole answer, and the streamed one."""

    async def ask() -> list[str]:
        llm = 'scripted:llm|@book {"people": 4}|It is booked.'
        async with served(agent=agent, llm=llm) as (_, url):
            base = url.replace("ws://", "http://").replace("/phone", "")
            async with AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
                names = [model.id async for model in client.models.list()]
                whole = await client.chat.completions.create(model="agent", messages=ASKED, **more)
                stream = await client.chat.completions.create(model="agent", messages=ASKED, stream=True)
                pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
                return [" ".join(names), str(whole.choices[0].message.content), "".join(pieces)]

    return asyncio.run(ask())


def test_the_agent_answers_with_its_tools() -> None:
    agent, booked = booking()
    names, whole, streamed = asked(agent)
    assert names == "default agent"
    assert whole.split() == streamed.split() == "Holding it. It is booked.".split()
    assert booked == [4, 4]


def test_tools_of_the_client_are_refused() -> None:
    agent, booked = booking()
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    with pytest.raises(BadRequestError, match="The agent has tools of its own"):
        asked(agent, tools=[tool])
    assert not booked
