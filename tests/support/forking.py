"""Runs ``rejoinder ARGUMENTS`` in a process that is forked from one which has imported the package already.

The standard library's fork server imports once per worker of the tests what every server imports. A server
then starts in a tenth of a second instead of one. Tests of the package's own start, such as those of the
wheel, run the command instead.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SHARED = ["rejoinder.agent.cli.app", "rejoinder.agent.server.serving", "openai", "uvicorn.loops.auto"]
"""Modules that the processes share."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(SHARED)


class Fork:
    """A running command, with the methods of ``subprocess.Popen`` that tests use.

    folder: its working directory. out, err: files for what it prints; they may be the same.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path, err: Path
    ) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        given = (list(arguments), str(folder), dict(environment), str(out), str(err), limit)
        self._process = CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status. Raises TimeoutExpired after ``timeout`` seconds."""
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("rejoinder", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


def _run(
    arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str, limit: tuple[int, int]
) -> None:
    """Be the command: take over its arguments, folder, environment, limit of descriptors and outputs."""
    gc.freeze()  # what is shared is not collected again by every server
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["rejoinder", *arguments]
    for path, number in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    from rejoinder.__main__ import main

    try:
        main()
    finally:
        gc.unfreeze()
        gc.collect()  # what an interpreter says at its end, of tasks that were never awaited, is said here
