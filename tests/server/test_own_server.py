"""The server in a child process, as the benches and the demo use it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import psutil
from rich.console import Console
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import PATIENCE, SCRIPTED
from websockets.asyncio.client import connect

from rejoinder.agent.server.own_server import own_process

PROGRAM = """
import asyncio
from rejoinder.agent.server.own_server import own_process

async def main():
    kinds = {"stt": "stt|hi", "llm": "llm|yes", "tts": "tts", "turn": "turn"}
    flags = {kind: f"scripted:{spec}" for kind, spec in kinds.items()}
    async with own_process(flags, None, {"REJOINDER_VAD": "scripted:vad"}) as (_, process):
        print(process, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_server_ends_when_its_parent_gets_sigterm() -> None:
    """It runs beside another one that has the ports of the configuration."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = {"REJOINDER_WYOMING_PORT": port, "REJOINDER_AUDIOSOCKET_PORT": port}
        begin_and_end({**os.environ, **ports})


def begin_and_end(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as client:
        assert client.stdout
        server = psutil.Process(int(client.stdout.readline()))
        assert server.is_running()
        client.send_signal(signal.SIGTERM)
        assert client.wait(30) == 128 + signal.SIGTERM
        deadline = time.monotonic() + PATIENCE
        while psutil.pid_exists(server.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not psutil.pid_exists(server.pid)


def test_console_shows_why_an_answer_failed() -> None:
    """Clients get only the message that the language model failed."""
    port, out = unused_port(), io.StringIO()

    def works(handler: Any, messages: list[dict[str, str]]) -> None:
        handler.wfile.write(token("All is well.") + token(None, "stop") + b"data: [DONE]\n\n")

    async def ask() -> None:
        async with AsyncExitStack() as stack:
            with chat_server(port, works):  # until it is ready
                flags = {**SCRIPTED, "llm": f"openai:http://127.0.0.1:{port}/v1#m"}
                vad = {"REJOINDER_VAD": "scripted:vad"}
                server = own_process(flags, Console(file=out, width=500), vad)
                url, _ = await stack.enter_async_context(server)
            async with asyncio.timeout(PATIENCE), connect(url, proxy=None) as call:
                await call.send(json.dumps({"type": "response.create"}))
                while "response.done" not in (said := str(await call.recv())):
                    pass
                assert "The language model failed." in said and str(port) not in said

    asyncio.run(ask())
    assert f"openai:http://127.0.0.1:{port}/v1#m: Connection error" in out.getvalue()
