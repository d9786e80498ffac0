"""What this server relies on in uvicorn, beside its public interface: a new version may change any of it.

pyproject.toml caps uvicorn for that. Raise the cap when these tests, and those of this folder, pass with it.
"""

from __future__ import annotations

import ast
import inspect
import tomllib
from importlib.metadata import version

import pytest
import uvicorn
from packaging.requirements import Requirement
from support.paths import ROOT
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rejoinder.agent.server.connection import SocketConnection
from rejoinder.agent.server.requests import HttpConnection
from rejoinder.agent.server.uvicorn_server import Uvicorn

RELIED_ON: list[tuple[type, type, str]] = [
    (
        Uvicorn,
        uvicorn.Server,
        "handle_exit server_state should_exit shutdown started startup",
    ),
    (
        HttpConnection,
        H11Protocol,
        "_unset_keepalive_if_required conn connection_lost connection_made cycle data_received flow "
        "handle_websocket_upgrade loop on_response_complete shutdown transport",
    ),
    (
        SocketConnection,
        WebSocketsSansIOProtocol,
        "close_sent close_timer config conn connection_lost connection_made curr_msg_data_type "
        "data_received disconnected handle_connect handle_cont handle_parser_exception "
        "handshake_complete handshake_initiated loop queue read_paused response run_asgi scope send "
        "send_receive_event_to_app shutdown stop_keepalive transport",
    ),
]
"""Each class of this server, uvicorn's class that it extends, and the names of that class that it uses."""


def used(cls: type) -> set[str]:
    """Return the names that a class uses of itself and of the class it extends."""
    names = set()
    for node in ast.walk(ast.parse(inspect.getsource(cls))):
        if not isinstance(node, ast.Attribute):
            continue
        of = node.value
        is_super = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super"
        if is_super or (isinstance(of, ast.Name) and of.id == "self"):
            names.add(node.attr)
    return names


def made(cls: type) -> set[str]:
    """Return the names that the source of a class defines: its methods, and the attributes that it sets."""
    names = set(vars(cls))
    for node in ast.walk(ast.parse(inspect.getsource(cls))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


@pytest.mark.parametrize(("ours", "theirs", "names"), RELIED_ON)
def test_uvicorn_has_what_this_server_relies_on(ours: type, theirs: type, names: str) -> None:
    bases = {name for base in theirs.__mro__ if base is not object for name in vars(base)}
    there = (made(theirs) | bases) - set(vars(object))
    relied = used(ours) & there
    assert relied == set(names.split())
    lost = used(ours) - there - made(ours) - set(getattr(ours, "__annotations__", {}))
    assert not lost, "uvicorn has these no more"


def test_uvicorn_is_capped_where_it_was_last_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = [
        one
        for each in project["optional-dependencies"]["server"]
        if (one := Requirement(each)).name == "uvicorn"
    ]
    assert any(one.operator == "<" for one in needed.specifier)
    assert needed.specifier.contains(version("uvicorn"))
