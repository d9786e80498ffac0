"""Tests that fail beside others run again, alone, and are named (``support/alone.py``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.alone import MOST, REPORT_VARIABLE
from support.paths import ROOT

ONLY_NEEDED_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,pytest_timeout"}
"""Environment of the runs. Each of their processes imports Hypothesis otherwise."""
PASSES = "def test_right():\n    pass\n"
FAILS = "def test_wrong():\n    assert False\n"
FAILS_FIRST = """
from pathlib import Path

def test_busy():
    seen = Path("seen").exists()
    Path("seen").touch()
    assert seen
"""
MANY_FAIL = f"""
import pytest

@pytest.mark.parametrize("number", range({MOST + 1}))
def test_wrong(number):
    assert False
"""
ENDS_ITS_PROCESS = "import os\n\ndef test_crash():\n    os._exit(1)\n"
HANGS = "import time\n\ndef test_hangs():\n    time.sleep(600)\n"
HANGS_WITHOUT_SIGNALS = """
import signal
import time

def test_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(600)
"""


def run(folder: Path, *files: str, options: str = "", workers: int = 0) -> tuple[int, list[str], list[str]]:
    """Run tests with these contents. Return the exit status, the lines of the output and the report."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{options}")
    for number, content in enumerate(files):
        (folder / f"test_{number}.py").write_text(content)
    report = folder / "report"
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "tests/support/alone.py", "-n", str(workers), "--dist", "loadfile"],
        cwd=folder,
        env=os.environ | ONLY_NEEDED_PLUGINS | {REPORT_VARIABLE: str(report)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    named = report.read_text().splitlines() if report.exists() else []
    return done.returncode, done.stdout.splitlines(), named


def test_green_run_reports_nothing(tmp_path: Path) -> None:
    status, lines, report = run(tmp_path, PASSES)
    assert (status, report) == (0, [])
    assert "1 passed" in lines[-1]


def test_test_that_passes_alone_is_green_and_named(tmp_path: Path) -> None:
    status, lines, report = run(tmp_path, FAILS_FIRST, PASSES)
    assert status == 0
    assert lines[-1] == "passed only alone: test_0.py::test_busy"
    assert report == ["test_0.py::test_busy"]


def test_test_that_fails_twice_is_red_and_named(tmp_path: Path) -> None:
    status, lines, report = run(tmp_path, FAILS, FAILS_FIRST, workers=2)
    assert status == 1
    assert lines[-2:] == ["failed twice: test_0.py::test_wrong", "passed only alone: test_1.py::test_busy"]
    assert report == ["test_1.py::test_busy"]


def test_many_failures_are_red_at_once(tmp_path: Path) -> None:
    status, lines, report = run(tmp_path, MANY_FAIL)
    assert (status, report) == (1, [])
    assert lines[-1] == f"{MOST + 1} tests failed, more than {MOST}: no test is run again."


@pytest.mark.parametrize("content", ["import nothing_of_this_name\n", "VALUE = 1\n"])
def test_file_without_tests_is_red(tmp_path: Path, content: str) -> None:
    status, _, report = run(tmp_path, content)
    assert status != 0
    assert report == []


def test_worker_that_ends_is_red(tmp_path: Path) -> None:
    """The tests after it did not run, so it does not help that its test passes alone."""
    status, lines, report = run(tmp_path, ENDS_ITS_PROCESS, PASSES, workers=1)
    assert (status, report) == (1, [])
    assert lines[-1] == "A worker ended: no test is run again."
    assert any("crashed while running 'test_0.py::test_crash'" in line for line in lines)


def test_hang_is_a_failure_with_its_stack(tmp_path: Path) -> None:
    status, lines, _ = run(tmp_path, HANGS, options="timeout = 1\n", workers=1)
    assert status == 1
    assert lines[-1] == "failed twice: test_0.py::test_hangs"
    assert any("Timeout (>1.0s)" in line for line in lines)
    assert any("time.sleep(600)" in line for line in lines)


def test_hang_that_no_signal_interrupts_is_red_with_its_stack(tmp_path: Path) -> None:
    limits = "timeout = 1\nfaulthandler_timeout = 2\nfaulthandler_exit_on_timeout = true\n"
    status, lines, _ = run(tmp_path, HANGS_WITHOUT_SIGNALS, options=limits, workers=1)
    assert status == 1
    assert any("crashed while running 'test_0.py::test_hangs'" in line for line in lines)
    assert any(line.endswith("in test_hangs") for line in lines)
