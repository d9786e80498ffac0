"""Kills one of two servers behind HAProxy, and checks that its clients go on at the other one.

HAProxy runs with a configuration that names its addresses by environment variables, as the one in
``deploy/balancer/`` does. The clients and their checks are those of ``kills``.
"""

from __future__ import annotations

import asyncio
import csv
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import IO

import numpy as np
from rich.table import Table
from websockets.exceptions import ConnectionClosed, WebSocketException

from rejoinder.agent.bench.kills import (
    LONG_ANSWER,
    LONGEST_LEAD_SECONDS,
    KilledCaller,
    Return,
    Wrong,
    begin,
    come_back,
    last_turn,
    moment,
)
from rejoinder.agent.server.own_server import free_port
from rejoinder.pipeline.errors import PipelineError

SERVER_NAMES = ("a", "b")
"""The names of the servers in HAProxy's configuration."""
CALLS_BACKEND = "calls"
"""The name of their group there."""
HAPROXY_PLACES = "/usr/sbin:/usr/local/sbin"
"""Folders in which packages put HAProxy, and which may be missing in a user's PATH."""
HAPROXY_SECONDS = 30.0
"""Longest wait until HAProxy sees the servers as they are, in seconds."""
STATISTICS_SECONDS = 0.05
"""Interval between two looks at HAProxy's statistics, in seconds."""


class NoBalancer(PipelineError):
    """HAProxy is not installed, or did not start. The message ends with its output."""


@dataclass(frozen=True, slots=True)
class Balancer:
    """A running HAProxy: the port for calls, that of AudioSocket, and that of its statistics."""

    port: int
    audiosocket: int
    status: int

    async def ready(self) -> set[str]:
        """Return the names of the servers that get calls. Cancelling stops waiting. Raises OSError."""
        rows = csv.DictReader((await asyncio.to_thread(self._statistics)).splitlines())
        up = {
            row["svname"] for row in rows if row["pxname"] == CALLS_BACKEND and row["status"].startswith("UP")
        }
        return up & set(SERVER_NAMES)

    def _statistics(self) -> str:
        connection = HTTPConnection("127.0.0.1", self.status, timeout=HAPROXY_SECONDS)
        with closing(connection):
            connection.request("GET", "/;csv")
            return connection.getresponse().read().decode().removeprefix("# ")

    async def until_all_ready(self) -> None:
        """Wait until all servers get calls. Cancelling stops waiting. Raises NoBalancer."""
        up: set[str] = set()
        try:
            async with asyncio.timeout(HAPROXY_SECONDS):
                while True:
                    try:
                        if (up := await self.ready()) == set(SERVER_NAMES):
                            return
                    except OSError:  # it starts
                        pass
                    await asyncio.sleep(STATISTICS_SECONDS)
        except TimeoutError:
            raise NoBalancer(f"HAProxy sends calls to {sorted(up)}, not to {SERVER_NAMES}") from None


@asynccontextmanager
async def balancing(
    file: Path, ports: Sequence[int], audiosocket: Sequence[int] = ()
) -> AsyncIterator[Balancer]:
    """Run HAProxy in front of two servers of this machine for the length of the block.

    file: its configuration. ports, audiosocket: of the servers; without the latter they have none. Raises
    NoBalancer. Cancelling ends HAProxy.
    """
    program = shutil.which("haproxy") or shutil.which("haproxy", path=HAPROXY_PLACES)
    if program is None:
        raise NoBalancer("HAProxy is not installed: apt-get install haproxy")
    balancer = Balancer(free_port(), free_port(), free_port())
    environment = {
        "BALANCER_BIND": f"127.0.0.1:{balancer.port}",
        "BALANCER_AUDIOSOCKET_BIND": f"127.0.0.1:{balancer.audiosocket}",
        "BALANCER_STATUS_BIND": f"127.0.0.1:{balancer.status}",
        **_addresses("BALANCER_{}", ports),
        **_addresses("BALANCER_{}_AUDIOSOCKET", audiosocket or [free_port() for _ in ports]),
    }
    with tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            *(program, "-db", "-f", str(file)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **environment},
        )
        try:
            await _started(balancer, process, said)
            yield balancer
        finally:
            if process.returncode is None:
                process.kill()  # SIGTERM would do the same; SIGUSR1 would wait for its connections
            await process.wait()


async def _started(balancer: Balancer, process: asyncio.subprocess.Process, said: IO[bytes]) -> None:
    """Wait until HAProxy sends calls to the servers. Raises NoBalancer with what it has said if it ends."""
    looking = asyncio.create_task(balancer.until_all_ready())
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((looking, ending), return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            return looking.result()
        said.seek(0)
        raise NoBalancer(f"HAProxy did not start:\n{said.read().decode('utf-8', 'replace')[-2000:]}")
    finally:
        looking.cancel()
        ending.cancel()


def _addresses(variable: str, ports: Sequence[int]) -> Mapping[str, str]:
    names = (variable.format(name.upper()) for name in SERVER_NAMES)
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}


async def kill_one(
    port: int, calls: int, kill: Callable[[], Awaitable[None]], dice: random.Random
) -> list[Return]:
    """Let clients call through a balancer, kill a server in their long replies, and let all go on.

    port: of the balancer. kill: kills one of the servers. dice: chooses the moment. Cancelling hangs up.
    Raises what ``kill`` raises; a call that fails is one of the results.
    """
    callers = [KilledCaller(port, reports=bool(number % 2)) for number in range(calls)]
    begun = [asyncio.Event() for _ in callers]
    killed = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        holding = [
            tasks.create_task(_hold(caller, ready, killed, dice.uniform(0.0, LONGEST_LEAD_SECONDS)))
            for caller, ready in zip(callers, begun, strict=True)
        ]
        for ready in begun:
            await ready.wait()
        await asyncio.sleep(moment(dice))
        killed.set_result(asyncio.get_running_loop().time())
        await kill()
    return [task.result() for task in holding]


async def _hold(
    caller: KilledCaller, ready: asyncio.Event, killed: asyncio.Future[float], wait: float
) -> Return:
    """Hold two turns, come back if the socket is lost in the second one, and hold a third one.

    A call that fails is a result that is wrong, so that the results of the others are not lost.
    """
    result = Return("", "", "", False, 0.0, cut=False)
    try:
        await begin(caller, wait)
        ready.set()
        try:
            await caller.until("response.done")
        except ConnectionClosed:
            return await come_back(caller, asyncio.get_running_loop().time(), await killed)
        said = caller.words[caller.item]
        await caller.played_out()
        last = await last_turn(caller)
        result.wrong = last if said == LONG_ANSWER else f"an undisturbed client heard {said!r}"
    except (Wrong, OSError, WebSocketException) as error:
        result.wrong = str(error) or type(error).__name__
    finally:
        ready.set()  # of a call that did not begin, too
        await caller.close()
    return result


def balanced_table(returns: list[Return]) -> Table:
    """Return the results for the terminal."""
    cut = [one for one in returns if one.cut]
    shown = Table("", "calls", "right", "with report", "s to resume, p50", "p95", "s to audio, p50", "p95")
    rest = [one for one in returns if not one.cut]
    resumed = np.percentile([one.seconds for one in cut if one.seconds] or [0.0], (50, 95))
    audible = np.percentile([one.audio_seconds for one in cut if one.audio_seconds] or [0.0], (50, 95))
    figures = [f"{seconds:.3f}" for seconds in (*resumed, *audible)]
    right, reported = sum(not one.wrong for one in cut), sum(one.reported for one in cut)
    shown.add_row("at the killed server", str(len(cut)), str(right), str(reported), *figures)
    shown.add_row("at the other one", str(len(rest)), str(sum(not one.wrong for one in rest)))
    return shown
