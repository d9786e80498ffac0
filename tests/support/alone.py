"""Runs pytest, and then each test that failed once more, alone.

``python -P tests/support/alone.py ARGUMENTS`` takes pytest's arguments. A test that fails beside others and
passes alone is a defect of the test, and is named at the end. The run fails if a test fails twice, if more
than ``MOST`` tests fail, or if a worker ends before its tests do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MOST = 10
"""Most failed tests that are run again. If more fail, the cause is not a busy machine."""
LIMIT_SECONDS = 900.0
"""Time limit of a process that runs one test. The limit of the test itself is in pyproject.toml."""
REPORT_VARIABLE = "PASSED_ALONE"
"""Environment variable with the path of a file that receives the names of tests that passed only alone."""


class Failures:
    """A pytest plugin that collects the names of the tests that failed, each once, in order.

    crashed: a worker of pytest-xdist ended during a test. The tests after it did not run.
    """

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.crashed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the test of a failed report."""
        if report.failed:
            self.crashed |= report.when not in ("setup", "call", "teardown")  # pytest-xdist says "???"
            if report.nodeid not in self.tests:
                self.tests.append(report.nodeid)


def main(arguments: Sequence[str]) -> int:
    """Run the tests that ``arguments`` of pytest select, and return the exit status."""
    failures = Failures()
    # A worker that is started anew begins with the test that ended the first one.
    status = pytest.main(["--max-worker-restart", "0", *arguments], plugins=[failures])
    sys.stdout.flush()
    if status != pytest.ExitCode.TESTS_FAILED:
        return int(status)
    if failures.crashed or len(failures.tests) > MOST:
        reason = (
            "A worker ended" if failures.crashed else f"{len(failures.tests)} tests failed, more than {MOST}"
        )
        print(f"{reason}: no test is run again.")
        return int(status)
    again = [test for test in failures.tests if not _passes(test)]
    alone = [test for test in failures.tests if test not in again]
    for test in again:
        print("failed twice:", test)
    for test in alone:
        print("passed only alone:", test)
    if report := os.environ.get(REPORT_VARIABLE):
        with Path(report).open("a") as file:
            file.writelines(f"{test}\n" for test in alone)
    return int(status) if again else 0


def _passes(test: str) -> bool:
    """Run one test in a process of its own, and return whether it passes."""
    print("Again, alone:", test, flush=True)
    command = [sys.executable, "-P", "-m", "pytest", "-m", "", test]  # -m "": the test is already selected
    try:
        return subprocess.run(command, timeout=LIMIT_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
