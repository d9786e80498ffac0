"""The server of ``rejoinder bench faults``: a process of its own, whose log and metrics can be read."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rejoinder.agent.bench.faults.models import FAULT_OF_STT
from rejoinder.agent.bench.faults.subject import CLOCK_FILE
from rejoinder.agent.server.own_server import ISOLATED, ServerFailed, command_line, free_port

SUBJECT = "rejoinder.agent.bench.faults.subject"
"""The module that runs the command line with models that fail."""
FAULT_START_SECONDS = 60.0
"""Longest wait until the server is ready, in seconds."""
FAULT_STOP_SECONDS = 20.0
"""Longest wait for its end, in seconds. Then it is killed."""
HUNG_STEP_SECONDS = "2"
"""The setting ``max_step_s`` of the server."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A running server, and the folder of its files."""

    port: int
    pid: int
    folder: Path

    @property
    def url(self) -> str:
        """The address of calls."""
        return f"ws://127.0.0.1:{self.port}/v1/realtime?model=default"

    @property
    def log(self) -> Path:
        """The file of its log."""
        return self.folder / "server.log"

    @property
    def traces(self) -> Path:
        """Its traces file."""
        return self.folder / "traces.jsonl"

    @property
    def answers(self) -> Path:
        """The file of its cache."""
        return self.folder / "answers.db"

    @property
    def clock(self) -> Path:
        """The file with the seconds that its wall clock is off."""
        return self.folder / "clock"

    async def metrics(self) -> dict[str, float]:
        """Return the value of each series, by its name and labels. Cancelling ends the request."""
        families = text_string_to_metric_families(await get(self.port, "/metrics"))
        return {
            f"{one.name.removeprefix('rejoinder_')}{{{','.join(one.labels.values())}}}": one.value
            for family in families
            for one in family.samples
        }

    @contextmanager
    def limited(self, what: int, most: int) -> Iterator[None]:
        """Set a limit of the process for the length of the block. what: such as ``resource.RLIMIT_FSIZE``."""
        before = resource.prlimit(self.pid, what, (most, resource.prlimit(self.pid, what)[1]))
        try:
            yield
        finally:
            resource.prlimit(self.pid, what, before)


async def get(port: int, path: str) -> str:
    """Return the body of a page, "" where the server does not answer. Cancelling ends the request."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        finally:
            writer.close()
    except OSError:
        return ""


@asynccontextmanager
async def serving_faults(folder: Path) -> AsyncIterator[Subject]:
    """Serve for the length of the block. Raises ServerFailed. Cancelling ends the server."""
    port = free_port()
    flags = {"stt": "faulty:stt", "llm": "faulty:llm", "tts": "faulty:tts", "turn": "scripted:turn"}
    command = [SUBJECT if word == "rejoinder" else word for word in command_line(port, flags)]
    (folder / "clock").write_text("0")
    environment = {
        "REJOINDER_VAD": "scripted:vad",
        "REJOINDER_MAX_STEP_S": HUNG_STEP_SECONDS,
        "REJOINDER_TRACE_FILE": str(folder / "traces.jsonl"),
        "REJOINDER_ANSWER_CACHE": f"sqlite:{folder / 'answers.db'}",
        FAULT_OF_STT: "raise",
        CLOCK_FILE: str(folder / "clock"),
    }
    with (folder / "server.log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=out, env={**os.environ, **ISOLATED, **environment}
        )
    subject = Subject(port, process.pid, folder)
    try:
        try:
            async with asyncio.timeout(FAULT_START_SECONDS):
                while '"ready"' not in await get(port, "/readyz"):
                    if process.returncode is not None:
                        raise ServerFailed(f"the server did not start: {subject.log.read_text()[-2000:]}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ServerFailed("the server did not become ready") from None
        yield subject
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(FAULT_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
