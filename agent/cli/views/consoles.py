"""The console of tables."""

from __future__ import annotations

import sys

from rich.console import Console

PIPE_COLUMNS = 200
"""Width of a table where the output is no terminal."""


def wide_console() -> Console:
    """Return a console for the standard output, which cuts no ids where that is no terminal."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
