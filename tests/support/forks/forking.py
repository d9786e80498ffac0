"""Runs commands and scripts in processes that are forked from one which has imported the package already.

That process, the fork server, imports once for all workers of the tests what every server imports. A server
then starts in a tenth of a second instead of one. Tests of the package's own start, such as those of the
wheel, run the command instead.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import multiprocessing
import os
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from support.patience import PATIENCE

SHARED = (
    "rejoinder.agent.cli.app",
    "rejoinder.agent.server.serving",
    "rejoinder.models.scripted",
    "numpy.random",
    "openai",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
)
"""Modules that the processes of the package share."""
COLLECTED_VARIABLE = "COLLECTED_TESTS"
"""Environment variable with the arguments of pytest for ``support.forks.collected``, as a JSON list."""
TESTS = Path(__file__).parent.parent.parent
_ADDRESSES: dict[tuple[str, ...], str] = {}


class Fork:
    """A running ``rejoinder ARGUMENTS``, with the methods of ``subprocess.Popen`` that tests use.

    folder: its working directory. out, err: files for what it prints; they may be the same. script: runs
    ``python SCRIPT ARGUMENTS`` instead. module: runs ``python -m MODULE ARGUMENTS`` instead. shared: the
    modules that the fork server has imported. The process ends with this object, at the latest.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        out: Path,
        err: Path,
        script: Path | None = None,
        module: str = "",
        shared: tuple[str, ...] = SHARED,
    ) -> None:
        request = {
            "command": [str(script or module or "rejoinder"), *arguments],
            "folder": str(folder),
            "environment": dict(environment),
            "out": str(out),
            "err": str(err),
            "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
            "is_script": script is not None,
            "module": module,
        }
        self._line = socket.socket(socket.AF_UNIX)
        weakref.finalize(self, self._line.close)
        self._line.connect(address(shared))
        self._line.sendall(json.dumps(request).encode() + b"\n")
        self._answers = self._line.makefile("rb", buffering=0)  # so that what is unread can be waited for
        weakref.finalize(self, self._answers.close)
        self.pid = int(self._answers.readline())
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        return self._wait(0.0)

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status. Raises TimeoutExpired after ``timeout`` seconds."""
        if (code := self._wait(timeout)) is None:
            raise subprocess.TimeoutExpired("rejoinder", timeout)
        return code

    def _wait(self, timeout: float) -> int | None:
        if self._code is None:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._line, selectors.EVENT_READ)
                if waiting.select(timeout):
                    self._code = int(self._answers.readline())
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and its status is on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run_forked(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], script: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command or a script, as ``Fork`` does, to its end. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory() as made:
        out, err = Path(made, "out"), Path(made, "err")
        code = Fork(arguments, folder, environment, out, err, script).wait(timeout=6 * PATIENCE)
        return subprocess.CompletedProcess(list(arguments), code, out.read_text(), err.read_text())


def address(shared: tuple[str, ...] = SHARED) -> str:
    """Return the path of the socket of the fork server that has imported these modules.

    The first call starts the server, unless this process has joined one.
    """
    if shared not in _ADDRESSES:
        _ADDRESSES[shared] = _start(shared)
    return _ADDRESSES[shared]


def join(path: str) -> None:
    """Use the fork server of the process that started this one."""
    _ADDRESSES[SHARED] = path


def _start(shared: tuple[str, ...]) -> str:
    """Start a fork server. It ends with this process, and so do all that it forked."""
    path = f"{tempfile.mkdtemp()}/forks"
    ours, theirs = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        fds = listener.fileno(), ours
        code = f"import sys; sys.path.append({str(TESTS)!r})\nfrom support.forks.forking import serve\n"
        command = [sys.executable, "-P", "-c", f"{code}serve(*{fds}, {shared})"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)
    os.close(ours)

    def end() -> None:
        os.close(theirs)
        server.wait()
        os.unlink(path)
        os.rmdir(os.path.dirname(path))

    atexit.register(end)
    return path


def serve(listening: int, alive: int, shared: tuple[str, ...]) -> None:
    """Fork a process for each connection, until the other end of ``alive`` is closed.

    A connection brings a request, a line of JSON and perhaps three open streams. It gets two lines: the
    identifier of the process and, when it has ended, its exit status. A process is killed where its
    connection is closed.
    """
    from rejoinder.models.threads import quiet

    quiet()  # before what would spin is loaded
    for name in shared:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is shared is never collected again, not at the end either: that would copy it
    forks = multiprocessing.get_context("fork")
    running: dict[socket.socket, ForkProcess] = {}
    with socket.socket(fileno=listening) as listener, selectors.DefaultSelector() as waiting:
        waiting.register(alive, selectors.EVENT_READ)
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd == alive:
                    return
                if key.fileobj is listener:
                    line = listener.accept()[0]
                    request, streams = _received(line)
                    if not request:  # the connection was closed before its request
                        line.close()
                        continue
                    given = ([listener, line, *running], request, streams)
                    # A daemon may start no processes with multiprocessing, and tests do.
                    process = running[line] = forks.Process(
                        target=_run, args=given, daemon="code" not in request
                    )
                    process.start()
                    for stream in streams:
                        os.close(stream)
                    _say(line, process.pid)
                    waiting.register(line, selectors.EVENT_READ)
                    waiting.register(process.sentinel, selectors.EVENT_READ, line)
                elif key.data is None and key.fileobj in running:
                    waiting.unregister(key.fileobj)
                    running[key.fileobj].kill()
                elif key.data in running:
                    _end(running.pop(key.data), key.data, waiting)


def _received(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request, {} if the connection closes before it, and the standard streams that came with it."""
    said, streams = b"", []
    while not said.endswith(b"\n"):
        more, came, *_ = socket.recv_fds(line, 2**16, 3)
        if not more:
            return {}, []
        said += more
        streams += came
    return json.loads(said), streams


def _say(line: socket.socket, number: int | None) -> None:
    with suppress(OSError):  # the test may have gone
        line.sendall(b"%d\n" % number)


def _end(process: ForkProcess, line: socket.socket, waiting: selectors.BaseSelector) -> None:
    """Report the exit status of a process."""
    waiting.unregister(process.sentinel)
    process.join()
    _say(line, process.exitcode)
    if line.fileno() in waiting.get_map():
        waiting.unregister(line)
    line.close()


def _run(servers: list[socket.socket], request: dict[str, Any], streams: list[int]) -> None:
    """Be the command: take over its arguments, folder, environment, limit of descriptors and outputs.

    servers: the fork server's sockets. streams: the standard streams; without them, the outputs are files.
    """
    for one in servers:
        one.close()
    command, environment = request["command"], request["environment"]
    resource.setrlimit(resource.RLIMIT_NOFILE, request["limit"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    # An interpreter reads this where it starts.
    sys.path += filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if streams:
        sys.stdin = open(0, closefd=False)  # multiprocessing has put the null device in its place
    for path in {request[name] for name in ("out", "err") if name in request}:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for name, number in (("out", 1), ("err", 2)):
            if request[name] == path:
                os.dup2(file, number)
        os.close(file)
    try:
        if "code" in request:
            exec(request["code"], {"__name__": "__main__"})
        elif request["is_script"]:
            sys.path.insert(0, str(Path(command[0]).parent))
            if environment.get("PYTHONWARNINGS") == "error":  # an interpreter reads it where it starts
                warnings.simplefilter("error")
            runpy.run_path(command[0], run_name="__main__")
        elif request.get("module"):
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        else:
            from rejoinder.__main__ import main

            main()
    finally:
        gc.collect()  # what an interpreter says at its end, of tasks that were never awaited, is said here
