"""Tools of real MCP servers, over stdio and streamable HTTP, in the protocols of 2026 and of 2025."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import stdio_client
from support.desk import KINDS, Desk, desk

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.agent.app.host import AgentHost, refuse_tools
from rejoinder.agent.app.mcp import connection as timing
from rejoinder.agent.app.mcp.connection import McpConnection
from rejoinder.agent.app.mcp.naming import model_name
from rejoinder.agent.app.mcp.server import McpServer, ToolRules
from rejoinder.agent.app.tool import CUT_NOTE, MAX_RESULT, ToolError
from rejoinder.agent.config import ConfigError
from rejoinder.pipeline import Options

CALL: Call[None, None] = Call(CallInfo(id="call-1"), None, None, Options(), {}, Agent())


@pytest.fixture(params=KINDS)
def any_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with desk(request.param, tmp_path) as one:
        yield one


@pytest.fixture(params=["stdio", "http"])
def new_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with desk(request.param, tmp_path) as one:
        yield one


@asynccontextmanager
async def connected(server: McpServer) -> AsyncIterator[McpConnection]:
    connection = McpConnection(server)
    running = asyncio.create_task(connection.run())
    await asyncio.wait_for(connection.tried.wait(), 30.0)
    try:
        yield connection
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def run(connection: McpConnection, tool: str, arguments: str = "{}") -> str:
    """Return what the model gets from a tool."""
    return await connection.tools[tool].run(CALL, arguments, FunctionRunner(1))


async def refused(connection: McpConnection, tool: str, arguments: str = "{}") -> str:
    """Return the error that the model gets from a tool."""
    with pytest.raises(ToolError) as error:
        await run(connection, tool, arguments)
    return str(error.value)


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.server
def test_tools_are_listed_called_refreshed_and_cancelled(any_desk: Desk) -> None:
    async def talk() -> None:
        async with connected(any_desk.server()) as server:
            add = server.tools["desk_add"].definition["function"]
            assert add["description"] == "Add two numbers."
            assert add["parameters"]["properties"]["a"]["type"] == "integer"
            assert await run(server, "desk_add", '{"a": 1, "b": 2}') == "3"
            assert "a\n" in await refused(server, "desk_add", '{"a": "x", "b": 2}'), "the model can mend it"
            assert "not JSON" in await refused(server, "desk_add", "{")
            assert (
                await run(server, "desk_weather", '{"city": "Rome"}') == '{"city": "Rome", "degrees": 21.5}'
            )
            assert await run(server, "desk_look_up") == (
                "Found:\nfile:///hours.md:\nOpen from nine.\nprices: All prices: file:///prices.md\n"
                "(an item that cannot be read here: image/png)"
            )
            assert "out of paper" in await refused(server, "desk_fail")
            long = await run(server, "desk_huge", '{"characters": 200000}')
            assert len(long) == MAX_RESULT and long.endswith(CUT_NOTE)

            await run(server, "desk_grow")
            await until(lambda: "desk_grown" in server.tools)
            assert await run(server, "desk_grown") == "grown indeed"

            waiting = asyncio.create_task(run(server, "desk_slow", '{"seconds": 60}'))
            await any_desk.notes("slow begun")
            waiting.cancel()
            await any_desk.notes("slow cancelled")

    asyncio.run(talk())


@pytest.mark.server
def test_killed_server_is_told_to_the_model_and_comes_back(any_desk: Desk) -> None:
    async def talk() -> None:
        async with connected(any_desk.server()) as server:
            waiting = asyncio.create_task(refused(server, "desk_slow", '{"seconds": 60}'))
            await any_desk.notes("slow begun")
            any_desk.kill()
            assert "broke while slow ran" in await waiting
            if any_desk.transport == "http":  # a process over stdio is started again at once
                await until(lambda: server.failure != "")
                assert "cannot be reached now" in await refused(server, "desk_add", '{"a": 1, "b": 2}')
            assert "desk_add" in server.tools, "the tools stay listed"
            any_desk.start()
            await until(lambda: len(any_desk.noted("started")) == 2 and not server.failure)
            assert await run(server, "desk_add", '{"a": 1, "b": 2}') == "3"
            assert any_desk.noted("slow") == ["slow begun"], "a call whose end is unknown runs once"

    asyncio.run(talk())


@pytest.mark.server
def test_process_starts_where_the_sdk_was_imported_without_a_real_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio_client.__wrapped__, "__defaults__", (io.StringIO(),))

    async def talk() -> None:
        with desk("stdio", tmp_path) as one:
            async with connected(one.server(forked=False)) as server:
                assert await run(server, "desk_add", '{"a": 1, "b": 2}') == "3"

    asyncio.run(talk())


@pytest.mark.server
def test_server_that_dies_while_nobody_calls_is_started_again(tmp_path: Path) -> None:
    async def talk() -> None:
        with desk("stdio", tmp_path) as one:
            async with connected(one.server()) as server:
                one.kill()
                await until(lambda: len(one.noted("started")) == 2 and not server.failure)
                assert await run(server, "desk_add", '{"a": 1, "b": 2}') == "3"

    asyncio.run(talk())


@pytest.mark.server
def test_call_whose_session_is_forgotten_runs_on_a_new_one(tmp_path: Path) -> None:
    """A restarted server of 2025 answers 404: it has not run the tool, so it is called again, once."""

    async def talk() -> None:
        with desk("http legacy", tmp_path) as one:
            async with connected(one.server()) as server:
                one.kill()
                one.start()
                assert await run(server, "desk_add", '{"a": 1, "b": 2}') == "3"
                assert one.noted("add") == ["add 1 2"]

    asyncio.run(talk())


@pytest.mark.server
def test_heartbeat_finds_a_server_that_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "REFRESH_S", 0.2)

    async def talk() -> None:
        with desk("http legacy", tmp_path) as one:
            async with connected(one.server()) as server:
                one.kill()
                await until(lambda: server.failure != "")

    asyncio.run(talk())


@pytest.mark.server
def test_tool_that_takes_too_long_is_cancelled_on_the_server(new_desk: Desk) -> None:
    rules = {"slow": ToolRules(timeout_s=0.5)}

    async def talk() -> None:
        async with connected(new_desk.server(rules=rules, timeout_s=20.0)) as server:
            assert server.tools["desk_add"].timeout_s == 20.0
            async with asyncio.timeout(30.0):
                while not new_desk.noted("slow begun"):  # a busy machine may give it up before it begins
                    why = await refused(server, "desk_slow", '{"seconds": 60}')
                    assert "did not finish within 0.5 s" in why
            await new_desk.notes("slow cancelled")

    asyncio.run(talk())


@pytest.mark.server
def test_only_allowed_tools_exist(new_desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    async def talk() -> None:
        async with connected(new_desk.server(allow=["add", "subtract"])) as server:
            assert list(server.tools) == ["desk_add"]
            assert [one.name for one in server.listed if one.name == "secret"], "the server has more"

    asyncio.run(talk())
    assert "has no tool subtract, which is allowed" in caplog.text


@pytest.mark.server
def test_huge_answers_over_http_are_not_read(tmp_path: Path) -> None:
    async def talk() -> None:
        with desk("http", tmp_path) as one:
            async with connected(one.server()) as server:
                assert "longer than" in await refused(server, "desk_huge", '{"characters": 9000000}')
                assert await run(server, "desk_add", '{"a": 1, "b": 2}') == "3", "the connection holds"

    asyncio.run(talk())


@pytest.mark.server
def test_host_opens_the_servers_for_all_calls_and_ends_their_processes(tmp_path: Path) -> None:
    """Two servers of one program: their tools have different names. A third one is not there."""

    async def talk() -> list[int]:
        with desk("stdio", tmp_path) as one:
            second = McpServer("till", one.server().target, frozenset({"add"}))
            missing = McpServer.stdio("no-such-program")
            agent: Agent[None, None] = Agent(
                mcp=[one.server(allow=["add", "grow", "grown"]), second, missing]
            )

            @agent.tool(name="desk_grow")
            async def grow() -> str:
                """Replace a tool of a server."""
                return "mine"

            host = AgentHost(agent)
            async with host.running():
                first, other = [(await host.answer(CallInfo(), Options())).call for _ in range(2)]
                assert set(first.tools) == {"desk_add", "desk_grow", "till_add"}
                threads = FunctionRunner(1)
                assert await first.tools["desk_grow"].run(first, "{}", threads) == "mine"
                assert await other.tools["till_add"].run(other, '{"a": 3, "b": 4}', threads) == "7"
                await host._mcp_tools[agent]["desk_grow"].run(other, "{}", threads)
                await until(lambda: "desk_grown" in first.tools)
                return [int(line.split()[1]) for line in one.noted("started")]

    pids = asyncio.run(talk())
    assert len(pids) == 2
    asyncio.run(until(lambda: not any(map(psutil.pid_exists, pids))))  # the last one may still be ending


def test_language_model_without_tools_is_refused() -> None:
    agent: Agent[None, None] = Agent(mcp=[McpServer.stdio("orders-server")])
    with pytest.raises(ConfigError, match=r"has tools \(orders-server\), and this language model cannot"):
        refuse_tools(agent)


def test_names_are_those_that_models_accept() -> None:
    assert model_name("mcp.example.com", "files/read") == "mcp_example_com_files_read"
    assert model_name("s" * 60, "search") == "s" * 57 + "_search"
    assert McpServer.stdio("uvx", "my-server", "--fast").name == "my-server"
    assert McpServer.stdio("npx", "-y", "@org/server-files", "/data").name == "server-files"
    assert McpServer.http("https://mcp.example.com/mcp").name == "mcp.example.com"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Agent(mcp=[McpServer.stdio("a"), McpServer.stdio("b", "a")]), "have the name a"),
        (lambda: McpServer.http("example.com/mcp"), "begins with http"),
    ],
)
def test_servers_that_cannot_be_are_refused(wrong: Callable[[], Awaitable[Any]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wrong()
    with pytest.raises(TypeError, match=r"allow=\['add'\]"):
        McpServer.stdio("a", allow="add")


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(McpServer.http("https://x.org", headers={"authorization": "hunter2"}))
