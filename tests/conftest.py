"""Readable assertions in the helpers, native threads that do not spin, equal random numbers, one browser."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

pytest.register_assert_rewrite("support")
# As in the server, and before numpy is loaded. Its matrices are small here: threads that spin for their next
# piece of one take four fifths of the processor's time (tests/bench/turns/test_fit.py: 16 s instead of 3 s).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
from rejoinder.models.threads import quiet  # noqa: E402

quiet()
# The noise of voices and the sampling of language models are the same in each run, in servers too.
os.environ.setdefault("REJOINDER_SEED", "1")

if find_spec("hypothesis"):  # vLLM's environment has none
    from hypothesis import HealthCheck, settings

    # Nothing has a time limit: on a busy machine an example, or making one, takes longer than the defaults.
    # Examples are the same in each run. `make fuzz` looks for new ones.
    settings.register_profile(
        "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def browser_is_closed() -> Iterator[None]:
    yield
    if browsing := sys.modules.get("support.browsing"):
        browsing.CHROMIUM_HERE.close()
