"""A conversation that waits for its client counts for its key. Resuming it does not count again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from support.resuming import DELTA, back, conversation, interrupted, session
from support.serving import LINE, Server, Talk, serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rejoinder.agent.server.keys import hashed

KEY = "rj_a-key-of-the-tests"
MINE = {"additional_headers": {"Authorization": f"Bearer {KEY}"}}


def secret(server: Server) -> dict[str, Any]:
    """Mint a secret and return how a client shows it."""

    async def mint() -> str:
        async with AsyncOpenAI(api_key=KEY, base_url=f"{server.http}/v1", max_retries=0) as client:
            return (await client.realtime.client_secrets.create()).value

    return {"additional_headers": {"Authorization": f"Bearer {asyncio.run(mint())}"}}


def test_dropping_sockets_does_not_evade_a_keys_limit(tmp_path: Path) -> None:
    with serving(tmp_path, llm=f"scripted:llm|{LINE}", api_keys=f"{hashed(KEY)}:1:0") as server:
        gone = interrupted(server, deltas=3, **MINE)
        with pytest.raises(InvalidStatus) as refused, Talk(server, **MINE):
            pass
        assert refused.value.response.status_code == 429
        elsewhere = f"ws://127.0.0.1:{server.port}/v1/pcm?conversation_id={conversation(gone)}"
        with pytest.raises(InvalidStatus) as refused, connect(elsewhere, **MINE):
            pass
        assert refused.value.response.status_code == 429, "the conversation is no ticket to other calls"
        with back(server, gone, **MINE) as again, back(server, again, **MINE) as after:
            assert session(after) == session(gone)
            assert after.until("response.done")["response"]["status"] == "completed"
        server.wait_idle()
        with Talk(server, **MINE) as talk:
            assert talk.turn()["status"] == "completed"
        server.wait_idle()


def test_conversation_can_be_resumed_with_another_secret_of_its_key(tmp_path: Path) -> None:
    with serving(tmp_path, llm=f"scripted:llm|{LINE}", api_keys=hashed(KEY)) as server:
        gone = interrupted(server, deltas=3, **secret(server))
        assert conversation(gone).startswith("conv_")
        with back(server, gone, **secret(server)) as after:
            after.until(DELTA)
            assert session(after) == session(gone)
        server.wait_idle()
