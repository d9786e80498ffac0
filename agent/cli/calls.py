"""``rejoinder calls``: the calls of a running server in a terminal, live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from rejoinder.agent.cli.calls_server import CallsServer, NotAnswered
from rejoinder.agent.cli.views.calls import call_view, lists_view

FOLLOW_RETRY_SECONDS = 2.0
"""Wait before a lost stream is opened again, in seconds."""


def calls(
    call: Annotated[str | None, typer.Argument(help="id of one call to show with its words")] = None,
    url: Annotated[str, typer.Option(help="http://… of a running server")] = "http://127.0.0.1:8080",
    key: Annotated[
        str | None, typer.Option(help="key of the server's setting calls_key", envvar="REJOINDER_KEY")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="print the calls once, instead of live")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, live a line for each change")] = False,
    words: Annotated[str, typer.Option(help="only earlier calls in which a side has said this")] = "",
    wire: Annotated[str, typer.Option(help="only earlier calls of this wire")] = "",
    slow_ms: Annotated[float, typer.Option(help="only earlier calls with an answer as slow as this")] = 0.0,
    errors: Annotated[bool, typer.Option("--errors", help="only earlier calls with an error")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="most earlier calls")] = 20,
) -> None:
    """Show the calls of a running server: live, or one with its words."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise typer.BadParameter(f"{url!r}: write http://HOST:PORT, or https://…", param_hint="--url")
    server = CallsServer(url, key)
    given = {"words": words, "wire": wire, "slow_ms": str(slow_ms or ""), "limit": str(limit)}
    query = {**given, "errors": "1" if errors else ""}
    try:
        if call:
            found = server.ask(f"calls/{quote(call, safe='')}", {})
            _print(found) if as_json else Console().print(call_view(found))
        elif once:
            found = server.ask("calls", query)
            _print(found) if as_json else Console().print(lists_view(found["live"], found["calls"]))
        elif as_json:
            for message in server.follow():
                _print(message)
        else:
            _watch(server, query)
    except NotAnswered as refused:
        Console(stderr=True).print(Text.assemble(("error: ", "red"), str(refused)), soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


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
