"""Writes the files of recordings."""

from __future__ import annotations

import errno
import io
import os
from typing import BinaryIO

from typing_extensions import Buffer

PRIVATE_FILE = 0o600
"""Permissions of a file: the user of the server reads and writes it."""


def write_whole(file: io.IOBase | BinaryIO, data: Buffer) -> None:
    """Write all of the data, which an unbuffered file may take in parts. Raises OSError."""
    view = memoryview(data).cast("B")
    while len(view):
        if not (written := file.write(view)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]
