"""Names the integrator's functions and mistakes in messages, with their file and line."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

STANDARD_LIBRARY = Path(os.__file__).parent
"""The folder of Python's own library."""
INSTALLED = ("site-packages", "dist-packages")
"""The folders of installed packages."""
SAID_CHARACTERS = 500
"""Most characters of an exception's text in a message."""


def described(function: Callable[..., Any]) -> str:
    """Return a function's name with its file and line, such as ``book (my_agent.py, line 12)``."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name} ({_short(code.co_filename)}, line {code.co_firstlineno})" if code else name


def place_of(error: BaseException) -> str:
    """Return the file and line of the integrator's code that raised an exception, "" if none did.

    It is the innermost line that is neither in this package nor in a library. A SyntaxError names its own.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_short(error.filename)}, line {error.lineno}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        if not (f"{module}.".startswith("rejoinder.") or _in_library(file)):
            return f"{_short(file)}, line {line}"
    return ""


def said_of(error: BaseException) -> str:
    """Return where an exception came from and what it says: ``my_agent.py, line 3: KeyError: 'key'``."""
    place = place_of(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if len(said) > SAID_CHARACTERS:
        said = f"{said[:SAID_CHARACTERS]}…"
    return f"{place}: {said}" if place else said


def _in_library(file: str) -> bool:
    path = Path(file)
    frozen = file.startswith("<")
    return frozen or path.is_relative_to(STANDARD_LIBRARY) or any(one in path.parts for one in INSTALLED)


def _short(file: str) -> str:
    """Return a file as seen from the current folder if it is inside, else its whole path."""
    path = Path(file).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
