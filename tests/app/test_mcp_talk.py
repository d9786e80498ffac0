"""Tools of an MCP server in a conversation, in virtual time: the rules are those of the agent's functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.mcp.server import McpServer, ToolRules
from rejoinder.agent.app.runs import CANCELLED
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.pipeline import Message, ReplyDone, ToolCall, Tools


class Caller:
    """A language model that calls one tool, again where the run was cancelled, and then tells the result."""

    def __init__(self, tool: str) -> None:
        self.open = 0
        self.tool = tool
        self.asked = 0
        self.offered: list[list[str]] = []

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "No tools."

    async def warm(self, messages: Sequence[Message]) -> None:
        pass

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        self.offered.append([one["function"]["name"] for one in tools.functions])
        self.open += 1
        try:
            await asyncio.sleep(0.08)
            results = [one["content"] for one in messages if one["role"] == "tool"]
            if not results or results[-1] == CANCELLED:
                self.asked += 1
                yield ToolCall(f"c{self.asked}", self.tool, '{"city": "Rome"}')
            else:
                yield f"I hear: {results[-1]}."
        finally:
            self.open -= 1


class Office:
    """An MCP server in this process, and what it did."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.log: list[str] = []
        self.server = MCPServer("office")
        self.server.add_tool(self.weather)
        self.seconds = seconds

    async def weather(self, city: str, ctx: Context[Any, Any]) -> str:
        """Tell the weather."""
        self.log.append("begun")
        self.server.add_tool(self.tides)
        await ctx.notify_tools_changed()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise
        self.log.append("done")
        return f"sunny in {city}"

    async def tides(self) -> str:
        """Tell the tides."""
        return "low"


def words(talk: Talk) -> list[str]:
    return [done.heard for done in talk.of(ReplyDone) if done.heard and done.status == "completed"]


def test_tool_of_a_server_is_answered_and_the_new_list_is_in_the_next_prompt() -> None:
    office, llm = Office(), Caller("office_weather")
    agent: Agent[None, None] = Agent(mcp=[McpServer.in_process(office.server)])
    talk = Talk("what is the weather", llm=llm, agent=agent)
    talk.says(0.6, at=0.5)
    talk.run(6.0)
    assert words(talk) == ["I hear: sunny in Rome."]
    assert llm.offered[0] == ["office_weather"] and llm.offered[-1] == ["office_weather", "office_tides"]


def test_tool_that_is_not_allowed_is_an_error_that_the_model_can_tell() -> None:
    office, llm = Office(), Caller("office_weather")
    office.server.add_tool(office.tides)
    agent: Agent[None, None] = Agent(mcp=[McpServer.in_process(office.server, allow=["tides"])])
    talk = Talk("what is the weather", llm=llm, agent=agent)
    talk.says(0.6, at=0.5)
    talk.run(6.0)
    assert words(talk) == ["I hear: There is no tool office_weather. The tools are: office_tides.."]
    assert office.log == []


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("start_ms", range(1_000, 4_500, 500))
def test_interruption_loses_and_doubles_nothing(start_ms: int, durable: bool) -> None:
    office, llm = Office(2.0), Caller("office_weather")
    rules = {"weather": ToolRules(durable=durable)}
    agent: Agent[None, None] = Agent(mcp=[McpServer.in_process(office.server, rules=rules)])
    talk = Talk("what is the weather", "and please hurry", llm=llm, agent=agent)
    talk.says(0.6, at=0.5)
    talk.says(0.6, at=start_ms / 1000)
    talk.run(14.0)
    assert office.log.count("begun") == office.log.count("done") + office.log.count("cancelled")
    assert office.log.count("done") == 1, "it ran to its end once"
    assert not durable or "cancelled" not in office.log
    assert "I hear: sunny in Rome." in words(talk), f"the result was lost: {talk.timeline()}"
