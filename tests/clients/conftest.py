"""The table of which client passed what, printed when the tests of the clients are over."""

import pytest
from checks import PARTS, ROWS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    terminalreporter.section("clients")
    for cells in (["client", "version", *PARTS], *ROWS):
        terminalreporter.write_line(f"{cells[0]:<38}{cells[1]:<10}" + "".join(f"{c:<13}" for c in cells[2:]))
