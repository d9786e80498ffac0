"""MCP servers that a Realtime client names: a real server, a real client, and OpenAI's published types."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.callers.openai_client import Caller, client
from support.desk import Desk, desk
from support.published import conforms
from support.servers.chat import chat_server
from support.servers.obedient import Obedient
from support.serving import Server, serving

from rejoinder.agent.server.own_server import free_port

TEXT: Any = {"type": "realtime", "output_modalities": ["text"]}


class Office:
    """A Rejoinder server, the MCP server beside it, and the language model that does as it is told."""

    def __init__(self, server: Server, desk: Desk, llm: Obedient, model: str) -> None:
        self.server, self.desk, self.llm, self.model = server, desk, llm, model

    def tool(self, **fields: Any) -> dict[str, Any]:
        return {"type": "mcp", "server_label": "desk", "server_url": self.desk.url, **fields}


class Typist(Caller):
    """A client that types."""

    async def ask(self, text: str) -> None:
        item: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        await self.connection.conversation.item.create(item=item)
        await self.connection.response.create()

    async def use(self, *tools: dict[str, Any]) -> None:
        await self.connection.session.update(session={**TEXT, "tools": [*tools]})

    async def item(self, type_: str) -> Any:
        """Return the next item of a type that is done."""
        while True:
            done = await self.until("conversation.item.done")
            if done.item.type == type_:
                return done.item

    def types(self) -> list[str]:
        return [event.type for event in self.events]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder, port, llm = tmp_path_factory.mktemp("office"), free_port(), Obedient()
    with desk("http", folder) as one, chat_server(port, llm.answer):
        model = f"openai:http://127.0.0.1:{port}/v1#m"
        with serving(folder, llm=model, allowed_mcp_urls=f"http://127.0.0.1:{one.port}/") as server:
            yield Office(server, one, llm, model)


def converse(office: Office, talk: Callable[[Typist], Awaitable[None]]) -> None:
    async def run() -> None:
        async with client(office.server) as openai, openai.realtime.connect(model="default") as connection:
            typist = Typist(connection)
            await typist.until("session.created")
            await talk(typist)
            conforms(event.model_dump(exclude_unset=True) for event in typist.events)

    asyncio.run(run())
    office.server.wait_idle()


def test_tools_are_listed_and_called_and_the_client_has_the_answer_said(office: Office) -> None:
    async def talk(typist: Typist) -> None:
        await typist.use(office.tool(allowed_tools=["add", "look.up"], require_approval="never"))
        await typist.until("session.updated")
        assert typist.events[-1].session.tools[0].server_label == "desk"
        listed = await typist.item("mcp_list_tools")
        assert {tool.name for tool in listed.tools} == {"add", "look.up"}
        assert listed.tools[0].input_schema["properties"]["a"]["type"] == "integer"
        await typist.until("mcp_list_tools.completed")
        assert typist.types()[-4:] == [
            "conversation.item.added",
            "mcp_list_tools.in_progress",
            "conversation.item.done",
            "mcp_list_tools.completed",
        ]

        typist.events.clear()
        await typist.ask('call desk_add {"a": 1, "b": 2}')
        called = await typist.item("mcp_call")
        assert (called.server_label, called.name, called.output) == ("desk", "add", "3")
        assert json.loads(called.arguments) == {"a": 1, "b": 2} and called.error is None
        assert [one for one in typist.types() if not one.startswith("conversation.item.")] == [
            "response.created",
            "response.output_item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.in_progress",
            "response.done",
            "response.mcp_call.completed",
            "response.output_item.done",
        ]
        await typist.connection.response.create()
        assert (await typist.until("response.output_text.done")).text == "It says: 3."
        await typist.until("response.done")
        await typist.connection.conversation.item.retrieve(item_id=called.id)
        assert (await typist.until("conversation.item.retrieved")).item.output == "3"

        await typist.ask("call desk_secret {}")  # the model invents a tool that is not allowed
        await typist.until("response.function_call_arguments.done")
        await typist.until("response.done")

    converse(office, talk)
    assert office.desk.noted("secret") == []
    told = next(messages for messages in office.llm.asked if messages[-1]["role"] == "tool")
    assert [message["role"] for message in told[-3:]] == ["user", "assistant", "tool"]
    assert told[-1]["tool_call_id"] == told[-2]["tool_calls"][0]["id"]


def test_changed_list_of_tools_reaches_the_client_and_the_model(office: Office) -> None:
    async def talk(typist: Typist) -> None:
        await typist.use(office.tool(require_approval="never"))
        first = await typist.item("mcp_list_tools")
        assert "grown" not in {tool.name for tool in first.tools}
        await typist.ask("call desk_grow {}")
        again = await typist.item("mcp_list_tools")
        await typist.until("mcp_list_tools.completed")
        assert again.id == first.id and "grown" in {tool.name for tool in again.tools}
        await typist.ask("call desk_grown {}")
        while (called := await typist.item("mcp_call")).name != "grown":
            pass
        assert called.output == "grown indeed"

    converse(office, talk)


@pytest.mark.parametrize("approve", [True, False])
def test_call_waits_for_the_clients_approval(office: Office, approve: bool) -> None:
    async def talk(typist: Typist) -> None:
        filtered = {"always": {"tool_names": ["add"]}, "never": {"read_only": True}}
        await typist.use(office.tool(require_approval=filtered))
        await typist.until("mcp_list_tools.completed")
        begun = len(office.desk.noted("add"))
        await typist.ask('call desk_add {"a": 2, "b": 2}')
        request = await typist.item("mcp_approval_request")
        assert (request.server_label, request.name) == ("desk", "add")
        await typist.until("response.done")
        await asyncio.sleep(0.3)
        assert len(office.desk.noted("add")) == begun, "it waits"
        answer: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
        await typist.connection.conversation.item.create(item={**answer, "reason": "wrong numbers"})
        called = await typist.item("mcp_call")
        assert called.approval_request_id == request.id
        await typist.connection.response.create()
        said = (await typist.until("response.output_text.done")).text
        if approve:
            assert called.output == "4" and said == "It says: 4."
        else:
            assert called.error.type == "tool_execution_error" and called.output is None
            assert said == "It says: The user did not approve this call. wrong numbers."
            assert "response.mcp_call.failed" in typist.types()
            assert "response.mcp_call.in_progress" not in typist.types()
        await typist.connection.conversation.item.create(item=answer)
        assert "waits for an answer" in (await typist.until("error")).error.message

    converse(office, talk)


def test_approval_is_the_default_and_reading_may_do_without(office: Office) -> None:
    async def talk(typist: Typist) -> None:
        await typist.use(office.tool(require_approval={"never": {"read_only": True}}))
        await typist.until("mcp_list_tools.completed")
        await typist.ask('call desk_add {"a": 2, "b": 3}')  # says that it only reads
        assert (await typist.item("mcp_call")).output == "5"
        await typist.ask('call desk_weather {"city": "Rome"}')
        assert (await typist.item("mcp_approval_request")).name == "weather"

    converse(office, talk)


def test_failures_of_a_tool_are_in_its_item(office: Office) -> None:
    async def talk(typist: Typist) -> None:
        await typist.use(office.tool(require_approval="never"))
        await typist.until("mcp_list_tools.completed")
        await typist.ask("call desk_fail {}")
        failed = await typist.item("mcp_call")
        assert failed.error.type == "tool_execution_error" and "out of paper" in failed.error.message
        await typist.connection.response.create()
        assert "out of paper" in (await typist.until("response.output_text.done")).text
        await typist.until("response.done")
        await typist.ask('call desk_huge {"characters": 9000000}')
        failed = await typist.item("mcp_call")
        assert failed.error.type == "protocol_error" and "longer than" in failed.error.message

    converse(office, talk)


def test_server_that_cannot_be_reached_is_a_failed_list(office: Office) -> None:
    async def talk(typist: Typist) -> None:
        dead = {**office.tool(), "server_url": f"http://127.0.0.1:{office.desk.port}/nothing/here"}
        await typist.use(dead)
        listed = await typist.item("mcp_list_tools")
        assert listed.tools == [] and listed.server_label == "desk"
        await typist.until("mcp_list_tools.failed")
        await typist.ask("hello")
        assert (await typist.until("response.output_text.done")).text == "Hello."

    converse(office, talk)


def test_servers_of_others_are_refused(office: Office) -> None:
    inside = {**office.tool(), "server_url": "http://169.254.169.254/latest/meta-data"}

    async def talk(typist: Typist) -> None:
        await typist.use(inside)
        error = (await typist.until("error")).error
        assert error.code == "mcp_server_not_allowed" and error.param == "session.tools.0.server_url"
        assert "allowed_mcp_urls" in error.message

    converse(office, talk)
    body = json.dumps({"session": {"tools": [inside]}}).encode()
    request = urllib.request.Request(f"{office.server.http}/v1/realtime/client_secrets", body, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 400
    refused.value.close()


def test_no_server_is_allowed_by_default(tmp_path: Path) -> None:
    tool = {"type": "mcp", "server_label": "x", "server_url": "https://example.com/mcp"}
    with serving(tmp_path) as server, server.call() as call:
        call.send(json.dumps({"type": "session.update", "session": {"tools": [tool]}}))
        while (answer := json.loads(call.recv(timeout=20)))["type"] != "error":
            pass
        assert answer["error"]["code"] in ("mcp_server_not_allowed", "tools_not_supported")


def test_client_of_an_open_server_reaches_no_private_address(office: Office, tmp_path: Path) -> None:
    """Server-side request forgery: the operator allows any server, and this one is on this machine."""

    async def talk(server: Server, port: int) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            typist = Typist(connection)
            await typist.until("session.created")
            for host in ("127.0.0.1", "localhost"):
                await typist.use(office.tool(server_url=f"http://{host}:{port}/mcp"))
                assert "has no public address" in (await typist.item("mcp_list_tools")).error
                await typist.until("mcp_list_tools.failed")

    with socket.create_server(("127.0.0.1", 0)) as inside:
        with serving(tmp_path, llm=office.model, allowed_mcp_urls="*") as server:
            asyncio.run(talk(server, inside.getsockname()[1]))
        inside.setblocking(False)
        with pytest.raises(BlockingIOError):
            inside.accept()
