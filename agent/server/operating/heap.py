"""The C library's heap: what models and sockets have freed goes back to the system.

glibc gives each thread a heap of its own, up to eight for each core, and keeps what is freed in them. The
buffers of models differ from turn to turn, so the free parts fit the next ones badly: a server grew while
what it held stayed as it was. With one heap, trimmed each minute, it grows less (docs/lab/soak.md).
"""

from __future__ import annotations

import asyncio
import ctypes
from contextlib import suppress
from typing import Any

M_ARENA_MAX = -8
"""Number of the option of mallopt(3) for the most heaps (malloc.h of glibc)."""
TRIM_SECONDS = 60.0
"""Interval between two trims, in seconds. One takes 3 to 8 ms, in which threads that need memory wait."""


def keep_one_heap() -> None:
    """Let all threads of this process share one heap. Call it before models load; only glibc has more."""
    if mallopt := getattr(_c_library(), "mallopt", None):
        mallopt(M_ARENA_MAX, 1)


async def trim_heap() -> None:
    """Give free memory back each ``TRIM_SECONDS``, until cancelled."""
    trim = getattr(_c_library(), "malloc_trim", None)
    while trim:
        await asyncio.sleep(TRIM_SECONDS)
        with suppress(RuntimeError):  # no thread can be started now: the next minute
            await asyncio.to_thread(trim, 0)


def _c_library() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # a static interpreter, or Windows
        return None
