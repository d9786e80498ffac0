"""The server of ``rejoinder bench faults``: a process of its own, whose files and limits can be reached."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rejoinder.agent.bench.faults.models import FAULT_OF_STT
from rejoinder.agent.bench.faults.plugin import FAULTY, FAULTY_MODELS, install_models
from rejoinder.agent.server.own_server import own_process

HUNG_STEP_SECONDS = "2"
"""The setting ``max_step_s`` of the server."""
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
"""Moves the wall clock of a process by what a file says. Debian has it in the package libfaketime."""
PADDING_LINES = 100_000
"""Lines that the traces file has at the start, so that a limit of its size does not stop the log."""
FAKED = {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
"""Leaves the clock alone that measures intervals."""
READ_EACH_SECOND = {"FAKETIME_CACHE_DURATION": "1"}
"""Reads the file once a second. Reading it at each look at the clock makes an answer seconds late."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A running server, and the folder of its files."""

    url: str
    pid: int
    folder: Path

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return urlsplit(self.url).port or 0

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
        """The file of its cache of answers."""
        return self.folder / "answers.db"

    @property
    def shift(self) -> Path:
        """The file that says how far its wall clock is off."""
        return self.folder / "shift"

    @contextmanager
    def limited(self, name: str, most: int) -> Iterator[None]:
        """Set a limit of the process for the length of the block. name: such as RLIMIT_FSIZE."""
        import resource  # not on Windows

        what = int(getattr(resource, name))
        before = resource.prlimit(self.pid, what)
        resource.prlimit(self.pid, what, (most, before[1]))
        try:
            yield
        finally:
            resource.prlimit(self.pid, what, before)


@asynccontextmanager
async def serving_faults(folder: Path, caches: bool, sets_clock: bool) -> AsyncIterator[Subject]:
    """Serve for the length of the block, with models that fail on a word.

    folder: an empty one. caches: whether answers are kept. sets_clock: whether the wall clock follows the
    file ``shift``. Raises ServerFailed. Cancelling ends the server.
    """
    path = [str(install_models(folder, FAULTY_MODELS)), *filter(None, [os.environ.get("PYTHONPATH")])]
    subject = Subject("", 0, folder)
    subject.shift.write_text("+0")
    subject.traces.write_text("{}\n" * PADDING_LINES)
    environment: Mapping[str, str] = {
        "PYTHONPATH": os.pathsep.join(path),
        "REJOINDER_VAD": "scripted:vad",
        "REJOINDER_MAX_STEP_S": HUNG_STEP_SECONDS,
        "REJOINDER_TRACE_FILE": str(subject.traces),
        "REJOINDER_CONVERSATIONS": f"sqlite:{folder / 'conversations.db'}",
        "REJOINDER_CALLS_DB": str(folder / "calls.db"),
        "REJOINDER_RECORDINGS": str(folder / "recordings"),
        "REJOINDER_RECORDING": "always",
        FAULT_OF_STT: "raise",
    }
    if caches:
        environment = {**environment, "REJOINDER_ANSWER_CACHE": f"sqlite:{subject.answers}"}
    if sets_clock:
        faked = {
            "LD_PRELOAD": str(FAKETIME[0]),
            "FAKETIME_TIMESTAMP_FILE": str(subject.shift),
        }
        environment = {**environment, **faked, **FAKED, **READ_EACH_SECOND}
    flags = {**FAULTY, "turn": "scripted:turn"}
    async with own_process(flags, environment=environment, log=subject.log) as (url, pid):
        yield Subject(url, pid, folder)
