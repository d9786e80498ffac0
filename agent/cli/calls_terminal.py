"""What ``rejoinder calls`` shows in a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rejoinder.agent.cli.calls_server import CallsServer, NotAnswered
from rejoinder.agent.cli.views.calls import call_view, lists_view
from rejoinder.agent.cli.views.consoles import wide_console

FOLLOW_RETRY_SECONDS = 2.0
"""Wait before a lost stream is opened again, in seconds."""


def show(server: CallsServer, call: str | None, query: Mapping[str, str], once: bool, as_json: bool) -> None:
    """Show one call, or the running and the earlier ones, live unless ``once``. Raises NotAnswered.

    query: which earlier calls. as_json: print JSON, live a line for each change.
    """
    if call:
        found = server.ask(f"calls/{quote(call, safe='')}", {})
        _print(found) if as_json else wide_console().print(call_view(found))
    elif once:
        found = server.ask("calls", query)
        _print(found) if as_json else wide_console().print(lists_view(found["live"], found["calls"]))
    elif as_json:
        for message in server.follow():
            _print(message)
    else:
        _watch(server, query)


def _watch(server: CallsServer, query: Mapping[str, str]) -> None:
    """Show the calls until the user interrupts. Raises NotAnswered where another try is pointless."""
    with Live(auto_refresh=False, console=Console(), vertical_overflow="crop") as screen:
        while True:
            ended, earlier = None, []
            try:
                for message in server.follow():
                    if message["ended"] != ended:
                        ended, earlier = message["ended"], server.ask("calls", query)["calls"]
                    screen.update(lists_view(message["live"], earlier), refresh=True)
            except NotAnswered as refused:
                if refused.final:
                    raise
                screen.update(Text(f"{refused}; trying again", "yellow"), refresh=True)
            time.sleep(FOLLOW_RETRY_SECONDS)


def _print(found: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
