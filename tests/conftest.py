"""Assertions in the helpers say what they compared, as in the tests. At the end the browser is closed."""

import sys
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("support")


@pytest.fixture(scope="session", autouse=True)
def browser_is_closed() -> Iterator[None]:
    yield
    if browsing := sys.modules.get("support.browsing"):
        browsing.CHROMIUM_HERE.close()
