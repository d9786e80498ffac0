"""The commands that install this program and its extras, for a checkout or an installed package."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from importlib.util import find_spec

from rejoinder.pipeline.errors import ModelError

NAME = "rejoinder"
"""The name of the distribution."""
NOTES = {"piper": " (GPL-3.0-or-later)"}
"""Text after the install command, by extra."""


def require(adapter: str) -> None:
    """Raise ModelError if the package of an adapter is missing. Module, extra and adapter share one name."""
    if find_spec(adapter) is None:
        raise ModelError(adapter, f"is not installed; run: {install(adapter)}{NOTES.get(adapter, '')}")


def install(extra: str = "") -> str:
    """Return the command that installs this program, with ``extra`` if it is not empty."""
    wanted = f"[{extra}]" if extra else ""
    if is_checkout():
        return f"{pip()} install -e '.{wanted}'"
    return f"{pip()} install '{NAME}{wanted}'"


def pip() -> str:
    """Return the pip command to type: in a checkout, the one in the environment of ``make setup``."""
    return ".venv/bin/pip" if is_checkout() else "pip"


def is_checkout() -> bool:
    """Return whether this program runs from a checkout with an editable install."""
    # Look at every distribution of the name: an egg-info folder in the current one hides the other.
    for found in distributions(name=NAME):
        if text := found.read_text("direct_url.json"):
            if json.loads(text).get("dir_info", {}).get("editable"):
                return True
    return False
