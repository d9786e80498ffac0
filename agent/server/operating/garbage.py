"""Python's garbage collector while calls run: what it visits, and how often."""

from __future__ import annotations

import gc

FULL_COLLECTION_AFTER = 2
"""A full collection follows this number of collections of the middle generation; Python's default is 10."""


def leave_models_alone() -> None:
    """Exclude all objects of now from collections, and collect the others more often.

    A collection that visits the models' objects would delay all calls. Without them it takes milliseconds.

    Ended replies and calls are in cycles, and hold audio: with Python 3.11, the task groups of cancelled
    tasks make some. A full collection begins only when a quarter as many objects are new as the last one has
    left (https://github.com/python/cpython/blob/3.11/Modules/gcmodule.c, long_lived_pending). So one more,
    with nothing to visit, precedes the calls: otherwise audio would be held for half an hour.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_AFTER)
