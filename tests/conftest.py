"""Readable assertions in the helpers, native threads that do not spin, equal random numbers, one browser."""

import gc
import json
import os
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.servers.redis import RedisServer

pytest.register_assert_rewrite("support")
from support.forks import forking  # noqa: E402
from support.longest import LONGEST  # noqa: E402

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


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the fork server that all of them share."""
    node.workerinput["fork_server"] = forking.address()


def pytest_configure(config: pytest.Config) -> None:
    """Let a worker use the fork server of all; let the workers be forks themselves.

    They come from a process that has imported all tests. Importing takes each worker 4 s otherwise.
    """
    if here := getattr(config, "workerinput", {}).get("fork_server"):
        forking.join(here)
    elif workers := config.getoption("tx", None):
        ignored = [f"--ignore={path}" for path in config.getoption("ignore") or ()]
        os.environ[forking.COLLECTED_VARIABLE] = json.dumps([*ignored, *config.args])
        script = Path(forking.__file__).with_name("worker.py")
        python = f"{sys.executable} -IS {script} {forking.address(('support.forks.collected',))}"
        config.option.tx = [f"popen//python={python}"] * len(workers)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what is imported, now and later.

    All of it stays to the end. Looking for garbage among it takes each worker a second now, and half a second
    each time that all objects are visited.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that none of them is left for the end."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator["RedisServer"]:
    """A Redis server that the tests of a worker share. A test that kills it starts one of its own."""
    from support.servers.redis import redis_server

    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def browser_is_closed() -> Iterator[None]:
    yield
    if browsing := sys.modules.get("support.browsing"):
        browsing.CHROMIUM_HERE.close()
