"""The consoles of commands: for tables, and for errors."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

PIPE_COLUMNS = 200
"""Width of a table where the output is no terminal."""


def wide_console() -> Console:
    """Return a console for the standard output, which cuts no ids where that is no terminal."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def mistakes_of(reason: object) -> list[str]:
    """Return the lines that say why a command failed: for a configuration, one for each mistake."""
    from rejoinder.agent.config import ConfigError

    return str(reason).splitlines() if isinstance(reason, ConfigError) else [str(reason)]


def complain(reason: object) -> None:
    """Print why a command failed, to the standard error stream."""
    for line in mistakes_of(reason):
        shown = Text.assemble(("error: ", "red"), line)
        Console(stderr=True).print(shown, highlight=False, soft_wrap=True)
