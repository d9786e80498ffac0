"""``python -m rejoinder.agent.bench.faults.subject``: the command line, with models that fail on a word.

It moves the wall clock of the process by the seconds in the file that ``BENCH_CLOCK_FILE`` names, which
may change at any time. The clock that measures intervals stays as it is, as when an operator sets the time.
"""

from __future__ import annotations

import os
import runpy
import time

from rejoinder.agent.bench.faults.models import open_faulty
from rejoinder.models.built_in import BUILT_IN, Adapter

CLOCK_FILE = "BENCH_CLOCK_FILE"
"""The environment variable that names the file of the clock's shift."""
CLOCK_BYTES = 32
"""Most bytes of that file."""


def install_faults() -> None:
    """Add the adapter ``faulty``, and shift the wall clock."""
    BUILT_IN["faulty"] = Adapter(str, open_faulty, "small", ("stt", "llm", "tts"))
    if path := os.environ.get(CLOCK_FILE):
        file, real = os.open(path, os.O_RDONLY), time.time  # open at all times: descriptors may run out
        time.time = lambda: real() + float(os.pread(file, CLOCK_BYTES, 0) or 0.0)


if __name__ == "__main__":
    install_faults()
    runpy.run_module("rejoinder", run_name="__main__", alter_sys=True)
