"""The commands that install this program, worded for how it was installed here."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from importlib.util import find_spec

from rejoinder.pipeline.errors import ModelError

NAME = "rejoinder"
NOTES = {"piper": " (GPL-3.0-or-later)"}


def require(adapter: str) -> None:
    """Raise ModelError where the package of an adapter is not installed; module and extra go by its name."""
    if find_spec(adapter) is None:
        raise ModelError(adapter, f"is not installed; run: {install(adapter)}{NOTES.get(adapter, '')}")


def install(extra: str = "") -> str:
    """Return the command that installs this program, with an extra if one is named."""
    wanted = f"[{extra}]" if extra else ""
    if is_checkout():
        return f"{pip()} install -e '.{wanted}'"
    return f"{pip()} install '{NAME}{wanted}'"


def pip() -> str:
    """Return the pip to type: in a checkout that of the environment that ``make setup`` makes."""
    return ".venv/bin/pip" if is_checkout() else "pip"


def is_checkout() -> bool:
    """Tell whether this program runs from a checkout that is installed editable."""
    # All that go by the name: an egg-info folder in the current one would hide the installed one.
    for found in distributions(name=NAME):
        if text := found.read_text("direct_url.json"):
            if json.loads(text).get("dir_info", {}).get("editable"):
                return True
    return False
