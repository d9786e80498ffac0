"""Keeps the tests of commands apart from each other and from this machine's configuration."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rejoinder.agent.config import OTHER_VARIABLES


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Reset the level of the log after each test: a command sets it, and later tests read the log."""
    yield
    logging.getLogger("rejoinder").setLevel(logging.NOTSET)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no configuration of this folder or environment."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("REJOINDER_") and name not in OTHER_VARIABLES:
            monkeypatch.delenv(name)
