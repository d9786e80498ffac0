"""What a request says of a call, before the call begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starlette.websockets import WebSocket

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.protocol import called_of, number_of
from rejoinder.pipeline.engines import call_id

KEY_HEADERS = ("authorization", "sec-websocket-protocol")
"""Headers of a request that may contain API keys."""
KEY_PARAMETERS = ("key", "api_key", "token")
"""Parameters of a URL that may contain API keys."""


def socket_id() -> str:
    """Return the id that the log lines of this WebSocket have already, or a new one in another server."""
    return call_id.current.get() or new_id("sess")


def http_info(websocket: WebSocket, wire: str, id_: str, query: Mapping[str, str] | None = None) -> CallInfo:
    """Return what is known of a call from its HTTP request. API keys are left out.

    query: of the request that began the call, None for this one.
    """
    headers = {name: value for name, value in websocket.headers.items() if name not in KEY_HEADERS}
    given = websocket.query_params if query is None else query
    asked = {name: value for name, value in given.items() if name not in KEY_PARAMETERS}
    return CallInfo(id_ or new_id("call"), wire, headers=headers, query=asked)


def carrier_info(carrier: Carrier, info: CallInfo) -> CallInfo:
    """Return what is known of a telephone call: that of its connection, and what the carrier says."""
    return replace(info, caller=number_of(carrier), called=called_of(carrier), metadata=carrier.parameters)
