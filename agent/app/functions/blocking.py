"""Measures how long each step of a coroutine holds up the event loop, which all calls share."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def measured(coroutine: Coroutine[Any, Any, T], took: Callable[[float], None]) -> Generator[Any, Any, T]:
    """Run a coroutine and return its result. Exceptions and cancelling pass unchanged.

    took: called with the seconds of each step, from where the coroutine goes on to where it waits again.
    """
    step: Callable[..., Any] = coroutine.send
    given: Any = None
    while True:
        began = perf_counter()
        try:
            waits_for = step(given)
        except StopIteration as returned:
            result: T = returned.value
            return result
        finally:
            took(perf_counter() - began)
        try:
            given, step = (yield waits_for), coroutine.send
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            given, step = error, coroutine.throw
