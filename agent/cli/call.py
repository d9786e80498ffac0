"""``rejoinder call``: lets a carrier call a number, and connects it with a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.wires.phone.control.api import HttpRequest
from rejoinder.agent.wires.phone.control.client import CarrierClient
from rejoinder.agent.wires.phone.control.outgoing import call_id, outgoing


def run(
    settings: Settings,
    via: str,
    number: str,
    parameters: Mapping[str, str],
    detect: bool,
    say: Callable[[str], None],
    complain: Callable[[object], None],
) -> int:
    """Call a number; return the exit status: 1 if the carrier does not call, 2 if a setting is missing.

    detect: whether the agent is to find out if a machine answers.
    say: prints the carrier's identifier of the call. complain: prints why there is none.
    """
    try:
        request = outgoing(settings, via, number, parameters, detect)
        answer = asyncio.run(_send(via.capitalize(), request))
    except ConfigError as error:
        complain(error)
        return 2
    except ToolError as error:
        complain(error)
        return 1
    say(f"{via} calls {number}: {call_id(answer)}")
    return 0


async def _send(carrier: str, request: HttpRequest) -> object:
    client = CarrierClient()
    try:
        return await client.send(carrier, request)
    finally:
        await client.aclose()
