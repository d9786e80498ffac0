"""The open traces file, on a disk that may be full."""

from __future__ import annotations

import errno
import logging
import os
from io import FileIO

from rejoinder.agent.faults import TRACE_FAULT, count_fault

log = logging.getLogger(__name__)


class TraceFile:
    """Appends lines to a file. A line is written whole or not at all. Raises OSError where it cannot open.

    path: the file, which is made if it is missing.
    """

    def __init__(self, path: str) -> None:
        self._file = FileIO(path, "a")
        self._lost = 0

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a line feed. Where the disk is full, the line is counted as lost.

        The log gets one line when writing begins to fail, and one when it succeeds again.
        """
        try:
            self._append(line)
        except (OSError, ValueError) as error:  # the disk is full, or the file is closed
            count_fault(TRACE_FAULT)
            self._lost += 1
            if self._lost == 1:
                log.error("cannot write the traces file %s: %s; the calls go on", self._file.name, error)
            return
        if self._lost:
            log.warning("the traces file is written again; %d lines are missing", self._lost)
            self._lost = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, line: bytes) -> None:
        written = self._file.write(line) or 0
        if written == len(line):
            return
        # The disk took a part of the line. What a program reads as JSON must not begin in mid-line.
        end = self._file.tell()
        if end == os.fstat(self._file.fileno()).st_size:  # no other process has appended since
            self._file.truncate(end - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
