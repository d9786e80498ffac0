"""The memory of KV caches: pages that hold no tokens belong to the system."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

Memory = np.ndarray[Any, np.dtype[np.float32]]
"""Keys or values of one layer, float32 [slots, heads, context, head width]."""
GIVE_BACK: int | None = getattr(mmap, "MADV_REMOVE", None)
"""Gives shared pages back (madvise(2)); only Linux has it. They are zeros when they are used again."""


class KvMemory:
    """Keys and values of all layers for some slots. Pages that were never used take no memory.

    The pages are small. numpy asks for huge ones (``NUMPY_MADVISE_HUGEPAGE``), which the kernel clears when a
    slot is first used: 0.2 s of CPU in the middle of a call. A token takes 3 % longer in exchange.

    shape: of each part: slots, heads, context in tokens, head width. parts: their number, two for each layer.
    """

    def __init__(self, shape: Sequence[int], parts: int) -> None:
        self._shape, self._advice = shape, GIVE_BACK
        self._maps = [mmap.mmap(-1, 4 * prod(shape)) for _ in range(parts)]
        self.parts: list[Memory] = [np.frombuffer(one, np.float32).reshape(shape) for one in self._maps]

    def give_back(self, slot: int, first: int) -> None:
        """Give the pages of a slot from token ``first`` on back to the system: about a millisecond."""
        if (advice := self._advice) is None:
            return
        _, heads, context, width = self._shape
        page = mmap.PAGESIZE
        for head in range(slot * heads, (slot + 1) * heads):
            unused, behind = 4 * width * (head * context + first), 4 * width * (head + 1) * context
            begin, end = -(-unused // page) * page, behind // page * page
            try:
                for one in self._maps if begin < end else ():
                    one.madvise(advice, begin, end - begin)
            except OSError:  # gVisor has none of this, and locked memory stays
                self._advice = None
                return
