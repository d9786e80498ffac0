"""The memory and the CPU time of a process, from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

from rejoinder.pipeline.errors import PipelineError


class NeedsLinux(PipelineError):
    """This system has no /proc, from which the benches read the memory and the CPU time of processes."""


def check_proc() -> None:
    """Raise NeedsLinux if there is no /proc."""
    if not Path("/proc/self/statm").is_file():
        raise NeedsLinux(
            "the memory and the CPU time of the server are read from /proc: this bench needs Linux"
        )


def resident(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(process: int) -> int:
    """Return the number of open descriptors of a process. Raises OSError if it has ended."""
    return len(os.listdir(f"/proc/{process}/fd"))


def threads(process: int) -> int:
    """Return the number of threads of a process. Raises OSError if it has ended."""
    return len(os.listdir(f"/proc/{process}/task"))


def processor_seconds(process: int) -> float:
    """Return the CPU seconds of a process so far, over all of its threads."""
    # Fields after the name, which is in brackets and may contain any character: state is field 0 (proc(5)).
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_running(process: int) -> bool:
    """Return whether a process has not ended. One that ended and is not awaited yet has ended, too."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    found = []
    for threads in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, threads.read_text().split()):
            found += [child, *descendants(child)]
    return found


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, 0 if the system does not report it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return 0
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
