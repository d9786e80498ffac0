"""What follows from MCP servers that a client names, without any server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.published import conforms

from rejoinder.agent.app.mcp.naming import model_name
from rejoinder.agent.wires.commands import (
    AddItem,
    CallRemoteTool,
    Configure,
    ListTools,
    ToolReturned,
    ToolsListed,
)
from rejoinder.agent.wires.realtime.mcp import McpTool, is_allowed
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.remote_tools import MAX_CALLS
from rejoinder.pipeline import Options, ReplyCalled, ReplyDone, ReplyStarted, ToolCall

URL = "https://example.com/mcp"
LISTED = [
    {"name": "search", "description": "Search.", "inputSchema": {"type": "object"}},
    {"name": "read.all", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]


def wire(allowed: str = "https://example.com/") -> Realtime:
    return Realtime(Options(), can_call=True, allowed_mcp_urls=allowed)


def tool(**fields: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "docs", "server_url": URL, "require_approval": "never", **fields}


def say(realtime: Realtime, type_: str, **fields: Any) -> list[Any]:
    answers = list(realtime.receive(json.dumps({"type": type_, **fields})))
    conforms(answers)
    return answers


def use(realtime: Realtime, *tools: dict[str, Any]) -> list[Any]:
    return say(realtime, "session.update", session={"tools": [*tools]})


def hears(realtime: Realtime, happened: Any) -> list[Any]:
    answers = list(realtime.handle(happened))
    conforms(answers)
    return answers


def listed(realtime: Realtime, *tools: dict[str, Any]) -> list[ListTools]:
    """Name servers, and let them list their tools; return what was asked of them."""
    asked = [one for one in use(realtime, *tools) if isinstance(one, ListTools)]
    for one in asked:
        hears(realtime, ToolsListed(one.label, one.item, LISTED))
    return asked


def offered(realtime: Realtime) -> list[str]:
    return [one["function"]["name"] for one in realtime.options().tools.functions]


def types(answers: list[Any]) -> list[str]:
    return [one["type"] if isinstance(one, dict) else type(one).__name__ for one in answers]


@pytest.mark.parametrize(
    ("url", "allowed", "fits"),
    [
        (URL, "", False),
        (URL, "*", True),
        (URL, "https://other.com https://example.com/mcp", True),
        (f"{URL}/a?b=c", URL, True),
        (f"{URL}2", URL, False),
        ("https://example.com:8443/mcp", "https://example.com/", False),
        ("https://example.com:443/mcp", URL, True),
        ("HTTPS://EXAMPLE.COM/mcp", URL, True),
        ("http://example.com/mcp", URL, False),
        ("https://example.com.evil.org/mcp", "https://example.com", False),
        ("https://example.com@evil.org/mcp", "https://example.com", False),
        ("https://example.com\\@evil.org/mcp", "*", False),
        ("https://example.com/mcp/../admin", URL, False),
        ("https://example.com/mcp/%2e%2e/admin", URL, False),
        ("file:///etc/passwd", "*", False),
        ("https://example.com:99999/", "*", False),
        ("https:///mcp", "*", False),
    ],
)
def test_url_is_allowed_by_the_operator_alone(url: str, allowed: str, fits: bool) -> None:
    assert is_allowed(url, allowed) is fits


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"server_url": "http://localhost/"}, "mcp_server_not_allowed", "server_url"),
        ({"server_url": None}, "missing_required_parameter", "server_url"),
        ({"connector_id": "connector_gmail"}, "unsupported_content", "connector_id"),
        ({"authorization": "a", "headers": {"Authorization": "b"}}, "invalid_value", "authorization"),
        ({"headers": {"Host": "inside"}}, "invalid_value", "headers"),
        ({"headers": {"Mcp-Session-Id": "x"}}, "invalid_value", "headers"),
        ({"server_label": "a b"}, "invalid_value", "server_label"),
        ({"require_approval": "sometimes"}, "invalid_value", "require_approval"),
    ],
)
def test_servers_that_cannot_be_used_are_refused(fields: dict[str, Any], code: str, param: str) -> None:
    realtime = wire()
    (refused,) = use(realtime, tool(**fields))
    assert refused["error"]["code"] == code, refused
    assert refused["error"]["param"] == f"session.tools.0.{param}", refused
    assert offered(realtime) == []


def test_two_servers_need_two_labels_and_there_are_not_too_many() -> None:
    (refused,) = use(wire(), tool(), tool())
    assert "two servers docs" in refused["error"]["message"]
    (refused,) = use(wire(), *(tool(server_label=f"s{number}") for number in range(9)))
    assert "at most 8" in refused["error"]["message"]


def test_secrets_of_a_server_are_sent_to_it_and_not_back() -> None:
    realtime = wire()
    answers = use(realtime, tool(authorization="hunter2", headers={"X-Tenant": "hunter3"}))
    updated = next(one for one in answers if isinstance(one, dict) and one["type"] == "session.updated")
    assert "hunter" not in json.dumps(updated) and "hunter" not in json.dumps(list(realtime.greet()))
    (asked,) = [one for one in answers if isinstance(one, ListTools)]
    assert asked.headers == {"authorization": "Bearer hunter2", "x-tenant": "hunter3"}


def test_server_is_listed_once_and_again_when_it_changes() -> None:
    realtime = wire()
    assert len(listed(realtime, tool())) == 1
    assert offered(realtime) == ["docs_search", "docs_read_all"]
    assert listed(realtime, tool(allowed_tools={"read_only": True})) == []
    assert offered(realtime) == ["docs_read_all"]
    assert listed(realtime, {"type": "mcp", "server_label": "docs"}) == [], "the label is enough"
    assert listed(realtime) == [] and offered(realtime) == []
    (first,) = [one for one in use(realtime, tool(authorization="new")) if isinstance(one, ListTools)]
    (second,) = [one for one in use(realtime, tool(authorization="newer")) if isinstance(one, ListTools)]
    assert types(hears(realtime, ToolsListed("docs", first.item, LISTED))) == ["Configure"], "it is replaced"
    assert offered(realtime) == []
    answers = hears(realtime, ToolsListed("docs", second.item, LISTED))
    assert types(answers) == ["Configure", "conversation.item.done", "mcp_list_tools.completed"]
    assert [one["name"] for one in answers[1]["item"]["tools"]] == ["search", "read.all"]
    assert answers[1]["item"]["tools"][1]["description"] == "read.all", "agents-js needs a string"


def test_function_of_the_client_goes_before_a_tool_of_the_same_name() -> None:
    realtime = wire()
    listed(realtime, tool(), {"type": "function", "name": "docs_search"})
    assert offered(realtime) == ["docs_search", "docs_read_all"]
    realtime.handle(ReplyStarted(1))
    called = hears(realtime, ReplyCalled(1, ToolCall("c1", "docs_search", "{}")))
    assert "response.function_call_arguments.done" in types(called)


def test_end_of_a_call_waits_for_the_end_of_its_response() -> None:
    realtime = wire()
    listed(realtime, tool())
    hears(realtime, ReplyStarted(1))
    called = hears(realtime, ReplyCalled(1, ToolCall("c1", "docs_search", '{"q": 1}')))
    assert called[-1] == CallRemoteTool("docs", "search", '{"q": 1}', "c1")
    (added,) = hears(realtime, ToolReturned("c1", "found"))
    assert isinstance(added, AddItem) and added.after == ("call", "c1"), "the model knows it at once"
    ended = types(hears(realtime, ReplyDone(1, "completed", "")))
    assert ended == [
        "response.done",
        "response.mcp_call.completed",
        "response.output_item.done",
        "conversation.item.done",
    ]
    hears(realtime, ReplyStarted(2))
    hears(realtime, ReplyCalled(2, ToolCall("c2", "docs_search", "{}")))
    hears(realtime, ReplyDone(2, "completed", ""))
    failed = hears(realtime, ToolReturned("c2", "no such page", "protocol_error", -32602))
    assert types(failed)[1] == "response.mcp_call.failed"
    error = failed[2]["item"]["error"]
    assert error == {"type": "protocol_error", "code": -32602, "message": "no such page"}


def test_tool_that_is_not_offered_is_not_called() -> None:
    realtime = wire()
    listed(realtime, tool(allowed_tools=["search"]))
    hears(realtime, ReplyStarted(1))
    called = hears(realtime, ReplyCalled(1, ToolCall("c1", "docs_read_all", "{}")))
    assert not [one for one in called if isinstance(one, CallRemoteTool)]
    use(realtime)
    called = hears(realtime, ReplyCalled(1, ToolCall("c2", "docs_search", "{}")))
    assert not [one for one in called if isinstance(one, CallRemoteTool)], "the session has it no more"


def test_single_response_may_have_other_tools() -> None:
    realtime = wire()
    listed(realtime, tool())
    narrow = {"type": "mcp", "server_label": "docs", "allowed_tools": ["search"]}
    (respond,) = say(realtime, "response.create", response={"tools": [narrow]})
    assert [one["function"]["name"] for one in respond.request.tools.functions] == ["docs_search"]
    hears(realtime, ReplyStarted(1, tag=1))
    hears(realtime, ReplyDone(1, "completed", ""))
    unknown = {"type": "mcp", "server_label": "other", "server_url": URL}
    (refused,) = say(realtime, "response.create", response={"tools": [unknown]})
    assert "session.update first" in refused["error"]["message"]
    (beside,) = say(realtime, "response.create", response={"conversation": "none"})
    assert beside.request.tools.functions == (), "their results enter the conversation"


def test_items_of_servers_may_be_referred_to() -> None:
    realtime = wire()
    (asked,) = listed(realtime, tool())
    hears(realtime, ReplyStarted(1))
    called = hears(realtime, ReplyCalled(1, ToolCall("c1", "docs_search", "{}")))
    hears(realtime, ReplyDone(1, "completed", ""))
    hears(realtime, ToolReturned("c1", "found"))
    id_ = called[0]["item"]["id"]
    given = [{"type": "item_reference", "id": one} for one in (asked.item, id_)]
    (respond,) = say(realtime, "response.create", response={"input": given})
    call, result = respond.request.prompt
    assert (call.role, call.name, result.role, result.text) == ("call", "docs_search", "tool", "found")
    assert call.call == result.call


def test_calls_that_wait_for_approval_are_bounded() -> None:
    realtime = wire()
    listed(realtime, tool(require_approval="always"))
    hears(realtime, ReplyStarted(1))
    for number in range(MAX_CALLS):
        called = hears(realtime, ReplyCalled(1, ToolCall(f"c{number}", "docs_search", "{}")))
        assert types(called)[-1] == "conversation.item.done"
    called = hears(realtime, ReplyCalled(1, ToolCall("last", "docs_search", "{}")))
    assert isinstance(called[-1], AddItem) and "Too many" in called[-1].entry.text


def test_failed_list_offers_nothing() -> None:
    realtime = wire()
    (asked,) = [one for one in use(realtime, tool()) if isinstance(one, ListTools)]
    answers = hears(realtime, ToolsListed("docs", asked.item, [], "no connection"))
    assert isinstance(answers[0], Configure)
    assert types(answers[1:]) == ["conversation.item.done", "mcp_list_tools.failed"]
    assert answers[1]["item"]["error"] == "no connection" and offered(realtime) == []


@pytest.mark.parametrize(
    ("approval", "asks"),
    [
        (None, [True, True]),
        ("always", [True, True]),
        ("never", [False, False]),
        ({"never": {"tool_names": ["search"]}}, [False, True]),
        ({"never": {"read_only": True}}, [True, False]),
        ({"always": {"tool_names": ["search"]}, "never": {}}, [True, False]),
    ],
)
def test_approval_is_asked_for_unless_the_client_does_without(approval: Any, asks: list[bool]) -> None:
    given = McpTool.model_validate(tool(require_approval=approval))
    assert [given.asks(one) for one in LISTED] == asks


def test_names_are_those_that_models_accept() -> None:
    assert model_name("docs", "files/read.all") == "docs_files_read_all"
    assert len(model_name("d" * 64, "x")) == 64


@pytest.mark.parametrize(
    ("allowed", "public_only"),
    [
        ("*", True),
        (f"* {URL}", False),
        ("https://example.com/", False),
        ("https://example.com/other *", True),
    ],
)
def test_url_that_only_the_star_allows_is_reached_at_public_addresses(
    allowed: str, public_only: bool
) -> None:
    (asked,) = listed(wire(allowed), tool())
    assert asked.public_only is public_only
