"""Files that the server reads again when they change: its certificate, and its API keys."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 2.0
"""Interval between two looks at the files, in seconds."""

Stamp: TypeAlias = list[tuple[int, int, int] | None]
"""The inode, size and time of the last change of each file, None for a file that is not there."""


class FollowedFiles:
    """Files that belong together. what: their name in the log.

    read: reads them all and puts them to use. It raises ValueError or OSError where they are wrong; then the
    state before stays in use. The files have been read once already.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], None]) -> None:
        self._what = what
        self._paths = paths
        self._read = read
        self._seen = stamp(paths)
        self._refused: Stamp | None = None

    def look(self, anyway: bool = False) -> None:
        """Read the files again if they have changed. anyway: read them even if they have not.

        Wrong files are read at each look, because their writer may not be done, and logged once.
        """
        now = stamp(self._paths)
        if now == self._seen and not anyway:
            return
        try:
            self._read()
        except Exception as error:  # whatever it is, the files are followed on
            if anyway or now != self._refused:
                log.error("%s not read again, what was read before stays in use: %s", self._what, error)
            self._refused = now
        else:
            self._seen, self._refused = now, None
            log.info("%s read again", self._what)


def stamp(paths: Sequence[Path]) -> Stamp:
    """Return what changes when one of the files is written or replaced. Links are followed."""
    found: Stamp = []
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
    return found


async def follow_files(files: Sequence[FollowedFiles]) -> None:
    """Look at the files again and again, until cancelled."""
    while files:
        await asyncio.sleep(FOLLOW_SECONDS)
        for each in files:
            each.look()
