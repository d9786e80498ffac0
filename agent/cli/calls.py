"""``rejoinder calls``: the calls of a running server in a terminal, live."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from rejoinder.agent.cli.views.consoles import complain


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
    from rejoinder.agent.cli.calls_server import CallsServer, NotAnswered
    from rejoinder.agent.cli.calls_terminal import show

    query = {"words": words, "wire": wire, "slow_ms": str(slow_ms or ""), "limit": str(limit)}
    try:
        show(CallsServer(url, key), call, {**query, "errors": "1" if errors else ""}, once, as_json)
    except NotAnswered as refused:
        complain(refused)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
