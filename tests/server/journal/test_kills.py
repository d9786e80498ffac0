"""A server that is killed in mid-reply, and started again: its clients go on where they were."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.scale.kills import KILLED_LLM, kill_once
from support.serving import Server, serving

pytestmark = pytest.mark.server


def test_clients_of_a_killed_server_go_on_where_they_were(tmp_path: Path) -> None:
    settings = {"llm": KILLED_LLM, "conversations": f"sqlite:{tmp_path / 'kept.db'}"}
    with ExitStack() as first, ExitStack() as second:
        server = first.enter_context(serving(tmp_path, clean=False, **settings))

        async def kill() -> None:
            await asyncio.to_thread(_kill, server)

        async def restart() -> None:
            await asyncio.to_thread(second.enter_context, serving(tmp_path, port=server.port, **settings))

        returns = asyncio.run(kill_once(server.port, 6, kill, restart, random.Random(1)))
        print(*returns, sep="\n", file=sys.stderr)
        assert [one.wrong for one in returns] == [""] * 6


def _kill(server: Server) -> None:
    server.process.kill()
    server.process.wait(20.0)
