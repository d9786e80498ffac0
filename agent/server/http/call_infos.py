"""What a request says of a call, before the call begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starlette.websockets import WebSocket

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.wires.phone.protocol import Phone
from rejoinder.agent.wires.wire import Wire

KEY_HEADERS = ("authorization", "sec-websocket-protocol")
"""Headers of a request that may contain API keys."""
KEY_PARAMETERS = ("key", "api_key", "token")
"""Parameters of a URL that may contain API keys."""


def http_info(websocket: WebSocket, wire: Wire, query: Mapping[str, str] | None = None) -> CallInfo:
    """Return what is known of a call from its HTTP request. API keys are left out.

    query: the parameters of the URL that began the conversation, None for this one's.
    """
    headers = {name: value for name, value in websocket.headers.items() if name not in KEY_HEADERS}
    given = websocket.query_params if query is None else query
    query = {name: value for name, value in given.items() if name not in KEY_PARAMETERS}
    return CallInfo(wire.id, wire.name, headers=headers, query=query)


def phone_info(phone: Phone, info: CallInfo) -> CallInfo:
    """Return what is known of a telephone call: that of its connection, and what the carrier says."""
    return replace(info, caller=phone.number, called=phone.called, metadata=phone.carrier.parameters)
