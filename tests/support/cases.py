"""One test for many cases, such as all files of the project."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from support.paths import ROOT

Case = TypeVar("Case", Path, str)


def for_each(cases: Iterable[Case]) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Run the test for each case, and name all that fail.

    Thousands of parametrised tests cost each worker two milliseconds apiece, and as much again to collect.
    """
    each = tuple(cases)

    def decorated(test: Callable[[Case], None]) -> Callable[[], None]:
        def run() -> None:
            assert each, "there are no cases"
            failed = []
            for case in each:
                try:
                    test(case)
                except AssertionError as error:
                    place = case.relative_to(ROOT) if isinstance(case, Path) else case
                    failed.append(f"{place}: {error}")
            assert not failed, "\n".join(failed)

        # Not functools.wraps: pytest would look for a fixture with the name of the case.
        run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
        run.__module__ = test.__module__
        return run

    return decorated
