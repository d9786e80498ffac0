"""The MCP servers that a client has named: their tools, the calls of them, and the client's approvals.

The order of the events is OpenAI's, as its guide and its clients have it:
https://developers.openai.com/api/docs/guides/realtime-mcp, and ``openaiRealtimeBase.ts`` of
@openai/agents-realtime, which retrieves an item when it is in progress, and requests the next response when
its call is done. So the end of a call is sent after the end of the response that made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rejoinder.agent.app.mcp.naming import model_name
from rejoinder.agent.wires.commands import AddItem, CallRemoteTool, ListTools, ToolReturned, ToolsListed
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.realtime.events import ServerEvent, event, item_added, kept_item
from rejoinder.agent.wires.realtime.items import Items
from rejoinder.agent.wires.realtime.mcp import McpTool, is_named
from rejoinder.agent.wires.realtime.response import Response
from rejoinder.agent.wires.realtime.shapes import ApprovalItem
from rejoinder.agent.wires.wire import Answers
from rejoinder.pipeline import Entry, ProtocolError, ToolCall

MAX_SERVERS = 8
"""Most MCP servers of one conversation."""
MAX_REMOTE_TOOLS = 128
"""Most tools of all MCP servers in one prompt, equal to the most of a session's own."""
MAX_CALLS = 64
"""Most calls that run or wait for approval at a time."""
TOO_MANY = "Too many calls wait for approval already."
"""The result of a further one."""
REFUSED = "The user did not approve this call."
"""The result of a call that the client refuses; its reason follows."""


@dataclass(slots=True)
class RemoteServer:
    """A server. item: the id of the item that lists its tools. tools: in OpenAI's shape, None before."""

    given: McpTool
    item: str
    tools: list[dict[str, Any]] | None = None
    announced: bool = False


@dataclass(slots=True)
class RemoteCall:
    """A call of a tool of a server. turn: of its response. place: that of its item in the response."""

    id: str
    label: str
    turn: int
    place: dict[str, Any]
    item: dict[str, Any]
    previous: str | None
    result: ToolReturned | None = None


@dataclass(slots=True)
class RemoteTools:
    """The servers of one conversation. allowed: the setting ``allowed_mcp_urls``."""

    items: Items
    allowed: str = ""
    _servers: dict[str, RemoteServer] = field(default_factory=dict)
    _calls: dict[str, RemoteCall] = field(default_factory=dict)
    _asked: dict[str, str] = field(default_factory=dict)

    # --- the servers ------------------------------------------------------------------------------------

    def check(self, tools: Sequence[McpTool], where: str) -> None:
        """Raise ProtocolError where a server is not allowed, not known, or named twice."""
        labels: set[str] = set()
        for number, tool in enumerate(tools):
            param = f"{where}.{number}"
            if tool.server_label in labels:
                reason = f"there are two servers {tool.server_label}"
                raise ProtocolError(reason, "invalid_value", f"{param}.server_label")
            labels.add(tool.server_label)
            if tool.server_url is not None or tool.server_label not in self._servers:
                tool.check(param, self.allowed)
        if len(self._servers.keys() | labels) > MAX_SERVERS:
            reason = f"a conversation has at most {MAX_SERVERS} MCP servers"
            raise ProtocolError(reason, "invalid_value", where)

    def check_known(self, tools: Sequence[McpTool], where: str) -> None:
        """Raise ProtocolError where the tools of a single response are of a server that is not known."""
        for number, tool in enumerate(tools):
            if tool.server_label not in self._servers:
                reason = f"name the server {tool.server_label} in session.update first"
                raise ProtocolError(reason, "unsupported_content", f"{where}.{number}.server_label")

    def define(self, tools: Sequence[McpTool]) -> None:
        """Take the servers of the session. One that is known already, as it is, is not listed again."""
        for tool in tools:
            known = self._servers.get(tool.server_label)
            if known and tool.server_url is None:
                continue
            if known and (known.given.server_url, known.given.sent) == (tool.server_url, tool.sent):
                known.given = tool
                continue
            self._servers[tool.server_label] = RemoteServer(tool, new_id("mcpl"))

    def start(self) -> Answers:
        """Return what lists the tools of the servers that are new."""
        answers: list[ListTools | ServerEvent] = []
        for label, server in self._servers.items():
            if server.announced:
                continue
            server.announced = True
            item = self._list_item(server, "in_progress", [])
            previous = self.items.keep(item, None)
            url = server.given.server_url
            assert url is not None  # ``check`` has seen it
            answers += [
                event("conversation.item.added", item=item, previous_item_id=previous),
                event("mcp_list_tools.in_progress", item_id=server.item),
                ListTools(label, server.item, url, server.given.sent, not is_named(url, self.allowed)),
            ]
        return answers

    def listed(self, result: ToolsListed) -> list[ServerEvent]:
        """Return the events for the list of a server, or for its failure."""
        server = self._servers.get(result.label)
        if server is None or server.item != result.item:  # defined anew in between
            return []
        if not result.error:
            server.tools = [_shape(tool) for tool in result.tools]
        shown = [tool for tool in server.tools or [] if server.given.allows(tool)]
        item = self._list_item(server, "incomplete" if result.error else "completed", shown)
        if result.error:
            item["error"] = result.error
        previous = self.items.before(server.item)
        self.items.rewrite(item)
        ended = "failed" if result.error else "completed"
        return [
            event("conversation.item.done", item=item, previous_item_id=previous),
            event(f"mcp_list_tools.{ended}", item_id=server.item),
        ]

    def functions(self, tools: Sequence[McpTool]) -> list[dict[str, Any]]:
        """Return the tools that the model may call now, in OpenAI's chat format."""
        found = []
        for given in tools:
            server = self._servers[given.server_label]
            choice = given if given.allowed_tools is not None else server.given
            for tool in server.tools or []:
                if choice.allows(tool):
                    name = model_name(given.server_label, tool["name"])
                    about = {"description": tool["description"], "parameters": tool["input_schema"]}
                    found.append({"type": "function", "function": {"name": name, **about}})
        return found[:MAX_REMOTE_TOOLS]

    # --- the calls --------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return whether a server has a tool of this name, allowed or not."""
        return self._find(name) is not None

    def called(self, response: Response, call: ToolCall) -> Answers:
        """Return the events for a call, and the command that runs it or the request for approval."""
        found = self._find(call.name)
        assert found is not None  # ``has`` has found it
        label, tool, asks = found
        fields = {"type": "mcp_call", "server_label": label, "name": tool["name"]}
        item = kept_item(new_id("mcp"), "in_progress", {**fields, "arguments": call.arguments})
        item |= {"approval_request_id": None, "output": None, "error": None}
        previous, place, events = response.called_remotely(call, item)
        self._calls[call.id] = RemoteCall(call.id, label, response.turn, place, item, previous)
        if len(self._calls) > MAX_CALLS:
            failed = ToolReturned(call.id, TOO_MANY, "tool_execution_error")
            return [*events, *self.returned(failed, live=True)]
        if not asks:
            return [*events, *self._run(call.id)]
        request = {**fields, "type": "mcp_approval_request", "arguments": call.arguments}
        asked = kept_item(new_id("mcpr"), "completed", request)
        item["approval_request_id"] = asked["id"]
        self._asked[asked["id"]] = call.id
        return [*events, *item_added(asked, self.items.keep(asked, None))]

    def answer(self, given: ApprovalItem, id_: str) -> Answers:
        """Take the client's approval or refusal of a call. Raises ProtocolError where none waits for it."""
        call = self._asked.pop(given.approval_request_id, None)
        if call is None:
            reason = f"no call waits for an answer to {given.approval_request_id}"
            raise ProtocolError(reason, "invalid_value", "item.approval_request_id")
        item = kept_item(id_, "completed", given.as_item())
        added = item_added(item, self.items.keep(item, None))
        if given.approve:
            return [*added, *self._run(call)]
        reason = f"{REFUSED} {given.reason or ''}".strip()
        return [*added, *self.returned(ToolReturned(call, reason, "tool_execution_error"), live=False)]

    def returned(self, result: ToolReturned, live: bool) -> Answers:
        """Return what follows from the end of a call.

        live: whether its response goes on; the events wait for the end of it then.
        """
        call = self._calls[result.id]
        entry = Entry("tool", result.text, ("item", f"result-{call.id}"), call=call.id)
        added = AddItem(entry, ("call", call.id))
        if live:
            call.result = result
            return [added]
        return [added, *self._end(call, result)]

    def turn_of(self, id_: str) -> int:
        """Return the turn of the response that made a call."""
        return self._calls[id_].turn

    def response_done(self, turn: int) -> list[ServerEvent]:
        """Return the events that have waited for the end of a response."""
        over = [call for call in self._calls.values() if call.turn == turn and call.result]
        return [one for call in over if call.result for one in self._end(call, call.result)]

    def _run(self, id_: str) -> Answers:
        call = self._calls[id_]
        running = event("response.mcp_call.in_progress", **_indexed(call))
        return [running, CallRemoteTool(call.label, call.item["name"], call.item["arguments"], id_)]

    def _end(self, call: RemoteCall, result: ToolReturned) -> list[ServerEvent]:
        del self._calls[call.id]
        item = {**call.item, "status": "incomplete" if result.error else "completed"}
        if result.error:
            code = {} if result.error == "tool_execution_error" else {"code": result.code}
            item["error"] = {"type": result.error, **code, "message": result.text}
        else:
            item["output"] = result.text
        self.items.rewrite(item)
        kind = "failed" if result.error else "completed"
        return [
            event(f"response.mcp_call.{kind}", **_indexed(call)),
            event("response.output_item.done", **call.place, item=item),
            event("conversation.item.done", item=item, previous_item_id=call.previous),
        ]

    def _find(self, name: str) -> tuple[str, dict[str, Any], bool] | None:
        """Return label and tool of a name, and whether its calls need approval; None for an unknown name."""
        for label, server in self._servers.items():
            for tool in server.tools or []:
                if model_name(label, tool["name"]) == name:
                    return label, tool, server.given.asks(tool)
        return None

    def _list_item(self, server: RemoteServer, status: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
        fields = {"type": "mcp_list_tools", "server_label": server.given.server_label, "tools": tools}
        return kept_item(server.item, status, fields)


def _shape(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool of the MCP specification in OpenAI's shape."""
    about = tool.get("description") or tool.get("title") or tool["name"]
    fields = {"name": tool["name"], "description": about, "input_schema": tool["inputSchema"]}
    return {**fields, "annotations": tool.get("annotations")}


def _indexed(call: RemoteCall) -> dict[str, Any]:
    return {"item_id": call.item["id"], "output_index": call.place["output_index"]}
