"""Mistakes in the integrator's file, as errors of the configuration."""

from __future__ import annotations

import logging

from rejoinder.agent.app.functions.places import said_of
from rejoinder.agent.config import ConfigError

log = logging.getLogger(__name__)


class BrokenAgent(ConfigError):
    """The integrator's own code has raised an exception, which is the cause of this one."""


def broken(what: str, error: BaseException) -> BrokenAgent:
    """Return the error for an exception of the integrator's code, with the line that raised it.

    what: what failed, such as "my_agent.py cannot be loaded". The log has the traceback at the level debug.
    """
    log.debug("%s", what, exc_info=error)
    return BrokenAgent(f"{what}: {said_of(error)}")
