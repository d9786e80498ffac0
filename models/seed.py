"""The seed of the models' random choices: the noise of voices, and the sampling of language models."""

from __future__ import annotations

import os

from rejoinder.pipeline.errors import ModelError

SEED_VARIABLE = "REJOINDER_SEED"
"""Environment variable with the seed, an integer from 0. Without it the choices differ from run to run."""


def seed() -> int | None:
    """Return the seed that the environment sets, None if it sets none. Raises ModelError for another text."""
    given = os.environ.get(SEED_VARIABLE, "")
    if not given:
        return None
    if not given.isdecimal():
        raise ModelError("models", f"{SEED_VARIABLE} is {given!r} and has to be an integer from 0")
    return int(given)
