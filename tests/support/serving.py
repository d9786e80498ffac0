"""The real server as a process of its own, with scripted models where the models do not matter."""

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from support.forks.forking import Fork, run_forked
from support.patience import PATIENCE
from support.ports import unused_port
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rejoinder.agent.server.own_server import command_line

LINE = "This is a sentence of the answer. "
SCRIPTED = {
    "llm": f"scripted:llm|{LINE}",
    "stt": "scripted:stt|what is the weather",
    "tts": "scripted:tts",
    "turn": "scripted:turn",
}
THREE_LINES = f"scripted:llm|{LINE * 3}"
"""For answers that have to last for six seconds. The scripted one lasts for two."""
BAD_SIGNS = ("Traceback", "never retrieved", "never awaited", "was destroyed")
BLOCKED = "the event loop has been blocked for"
"""Begins a warning that a busy machine may add to any log."""
IN_ENVIRONMENT = (
    "max_sessions",
    "behind_balancer",
    "trusted_proxies",
    "drain_s",
    "drain_goodbye",
    "drain_url",
    "max_connects_per_s",
    "handshake_s",
    "max_messages_per_s",
    "max_silent_s",
    "max_step_s",
    "max_stuck_s",
    "max_endless_turns",
    "max_turn_s",
    "idle_ends",
    "last_words",
    "audiosocket_port",
    "conversations",
    "limits_store",
    "resume_s",
    "max_call_s",
    "api_keys",
    "api_keys_file",
    "wyoming_port",
    "recordings",
    "recording",
    "recording_key_file",
    "recording_format",
)
"""Settings that have no flag."""
COMMAND = [sys.executable, "-m", "rejoinder"]


@dataclass
class Server:
    """A running server: its address, its process and the file it writes to."""

    port: int
    process: Fork | subprocess.Popen[bytes]
    log: Path

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.http + path, timeout=PATIENCE) as response:
            return json.load(response)

    def call(self, query: str = "", **options: Any) -> AbstractContextManager[ClientConnection]:
        """Return a call to be entered; the greeting is still to be received."""
        url = f"ws://127.0.0.1:{self.port}/v1/realtime?model=default{query}"
        # No pings: this client sees a pong only while a test reads, and would hang up on itself.
        options = {"ping_interval": None, "open_timeout": PATIENCE, **options}
        call: AbstractContextManager[ClientConnection] = connect(url, proxy=None, max_size=None, **options)
        return call

    def sessions(self) -> int:
        return int(self.get("/healthz")["sessions"])

    def wait_idle(self, sessions: int = 0) -> None:
        """Wait until no more than ``sessions`` are left; fails when more stay."""
        deadline = time.monotonic() + PATIENCE
        while self.sessions() > sessions:
            assert time.monotonic() < deadline, "a session stayed behind"
            time.sleep(0.05)

    def memory(self) -> int:
        """Return the resident bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextmanager
def serving(
    folder: Path,
    *,
    wait: bool = True,
    clean: bool = True,
    port: int = 0,
    within: Sequence[str] = (),
    **flags: str,
) -> Iterator[Server]:
    """Serve for the length of the block; ends with SIGTERM, which must be orderly and leave a clean log.

    flags: override the scripted models; ``max_sessions`` and the like pass through. wait: until it is ready.
    port: 0 for one that nothing uses. within: a command that runs the server's. At its end calls in progress
    end at once, unless ``drain_s`` is given.
    """
    port = port or unused_port()
    given = {**SCRIPTED, **flags}
    log = folder / "server.log"
    environment = {"REJOINDER_LOG_FORMAT": "pretty", "REJOINDER_DRAIN_S": "0", **os.environ}
    environment["REJOINDER_VAD"] = given.pop("vad", "scripted:vad")
    environment |= {f"REJOINDER_{name.upper()}": given.pop(name) for name in IN_ENVIRONMENT if name in given}
    log.write_bytes(b"")
    process = _start([*within, *command_line(port, given)], folder, environment, log)
    server = Server(port, process, log)
    try:
        deadline = time.monotonic() + 6 * PATIENCE
        while wait and not _ready(server):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the server did not get ready"
            time.sleep(0.02)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=PATIENCE)
    said = log.read_text()
    if clean:
        assert code == 0, said
        assert not [sign for sign in BAD_SIGNS if sign in said], said


def _start(
    command: list[str], folder: Path, environment: dict[str, str], log: Path
) -> Fork | subprocess.Popen[bytes]:
    """Start the server, as a fork where it can be one.

    A server that another interpreter runs, such as that of a wheel, is started by its command. So is one with
    vLLM, because a fork may have no processes of its own, and one with a library to be loaded first.
    """
    forks = "LD_PRELOAD" not in environment and not any(word.startswith("vllm:") for word in command)
    if command[:3] == COMMAND and forks:
        return Fork(command[3:], folder, environment, log, log)
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=folder)


def _ready(server: Server) -> bool:
    try:
        return bool(server.get("/readyz")["status"] == "ready")
    except OSError:
        return False


def begin_to_end(server: Server, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal, and wait until the server drains."""
    server.process.send_signal(number)
    deadline = time.monotonic() + PATIENCE
    while "draining: calls in progress" not in server.log.read_text():
        assert time.monotonic() < deadline, "the server does not drain"
        time.sleep(0.02)


class Talk:
    """A call from the client's side, with helpers that read events until one of a kind comes."""

    def __init__(self, server: Server, greeted: bool = True, **options: Any) -> None:
        self._open = ExitStack()
        self.socket = self._open.enter_context(server.call(**options))
        self.seen: list[dict[str, Any]] = []
        if greeted:
            self.until("conversation.created")

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def send(self, type_: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type_, **fields}))

    def event(self, timeout: float = PATIENCE) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.socket.recv(timeout=timeout))
        self.seen.append(event)
        return event

    def until(self, type_: str, timeout: float = PATIENCE) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while (event := self.event(max(0.1, deadline - time.monotonic())))["type"] != type_:
            assert time.monotonic() < deadline, f"no {type_}, only {Counter(e['type'] for e in self.seen)}"
        return event

    def read_to_end(self) -> tuple[int | None, str | None]:
        """Read events until the socket closes; return the code and the reason of the server's close frame."""
        with suppress(ConnectionClosed):
            while True:
                self.event()
        return self.socket.close_code, self.socket.close_reason

    def speak(self, seconds: float = 0.6, pause: float = 1.2) -> None:
        """Say something: loud noise, which is speech to the scripted VAD, and then silence; in one go."""
        loud = np.random.default_rng(0).normal(0.0, 6000.0, int(seconds * 24_000)).astype("<i2")
        quiet = np.zeros(int(pause * 24_000), "<i2")
        for chunk in np.array_split(np.concatenate((loud, quiet)), 50):
            self.append(chunk.tobytes())

    def append(self, pcm: bytes) -> None:
        self.send("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    def cut(self) -> None:
        """Break the socket off: no close frame, no orderly end."""
        self.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.socket.shutdown(socket.SHUT_RD)
        self.socket.socket.close()

    def turn(self) -> dict[str, Any]:
        """Hold a whole turn and return its response."""
        self.speak()
        response: dict[str, Any] = self.until("response.done")["response"]
        return response


def run_command(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``rejoinder ARGUMENTS`` to its end."""
    return run_forked(arguments, folder, {**os.environ, **environment})


def run_script(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python SCRIPT ARGUMENTS`` to its end."""
    return run_forked(arguments, Path.cwd(), {**os.environ, **environment}, script)
