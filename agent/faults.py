"""Counts faults of what surrounds the process: its disk, its descriptors and its clock."""

from __future__ import annotations

from collections import Counter

TRACE_FAULT = "trace_file"
"""A line of the traces file was not written."""
LOG_FAULT = "log"
"""A line of the log was not written."""
DESCRIPTORS_FAULT = "descriptors"
"""A connection was not accepted, because no file descriptor was left."""
CLOCK_FAULT = "clock"
"""The wall clock jumped."""

FAULTS: Counter[str] = Counter(dict.fromkeys([TRACE_FAULT, LOG_FAULT, DESCRIPTORS_FAULT, CLOCK_FAULT], 0))
"""The faults of this process since its start, by kind. All its servers share them, as they share the disk."""


def count_fault(kind: str) -> None:
    """Count a fault. Any thread may."""
    FAULTS[kind] += 1
