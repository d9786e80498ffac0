"""What the benches read of a process in /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rejoinder.agent.bench.process import descendants, descriptors, is_running, threads

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux")

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_process_that_was_killed_has_ended_before_it_is_awaited() -> None:
    with subprocess.Popen(SLEEPS) as process:
        assert is_running(process.pid) and process.pid in descendants(os.getpid())
        process.send_signal(signal.SIGKILL)
        while is_running(process.pid):
            time.sleep(0.01)
    assert process.returncode == -signal.SIGKILL
    assert not is_running(process.pid)


def test_open_files_and_threads_are_counted() -> None:
    own = os.getpid()
    before = descriptors(own)
    with open("/dev/null"):
        assert descriptors(own) == before + 1
    assert descriptors(own) == before and threads(own) >= 1
