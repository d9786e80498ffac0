"""pip as the package runs it, in a process that is forked from one which has imported pip already."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from support.forks.forking import Fork

PIP = ("pip._internal.cli.main", "pip._internal.commands.download")


class ForkedPip:
    """Has what the package uses of ``subprocess.Popen``: the output as lines of text, and the exit status."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        assert list(command[:4]) == [sys.executable, "-P", "-m", "pip"], command
        assert options["stdout"] == subprocess.PIPE and options["stderr"] == subprocess.STDOUT
        self.returncode: int | None = None
        with tempfile.TemporaryDirectory() as folder:
            pipe = Path(folder, "pipe")
            os.mkfifo(pipe)
            self._process = Fork(command[4:], Path.cwd(), os.environ, pipe, pipe, module="pip", shared=PIP)
            self.stdout = pipe.open(errors=options["errors"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.returncode = self._process.wait(60.0)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


FORKING = SimpleNamespace(
    Popen=ForkedPip, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT, DEVNULL=subprocess.DEVNULL
)
"""Takes the place of the module ``subprocess`` where the package runs pip."""
