"""Splits the bytes of a WebSocket client into portions that fit one turn of the event loop. No I/O.

A long frame becomes fragments, as RFC 6455, 5.4, allows to any intermediary. The library then unmasks and
inflates one fragment at a time, instead of up to 15 MiB.
"""

from __future__ import annotations

from collections import deque

PORTION_BYTES = 2**16 - 4
"""Most bytes of a fragment and of a portion. A multiple of 4, so that a frame's mask fits its fragments."""
PACKED_PIECE = 2**10
"""Most bytes of a compressed fragment. Each byte inflates to up to 1,032."""
PACKED_COST = 8
"""Weight of a compressed byte in a portion, relative to a plain one."""
PORTION_FRAMES = 32
"""Most frames in a portion."""
FIN = 0x80
"""Bit of a frame's first byte: the last fragment of a message."""
PACKED = 0x40
"""Bit of a frame's first byte: compressed."""
OTHERS = 0x30
"""Bits of a frame's first byte that no extension here uses."""
CONTROL_BIT = 0x08
"""Bit of a frame's first byte: a control frame."""
MASKED = 0x80
"""Bit of a frame's second byte: masked."""
TWO = 126
"""Length in a frame's second byte: the real length is in the next 2 bytes."""
EIGHT = 127
"""Length in a frame's second byte: the real length is in the next 8 bytes."""
MAX_FRAME_HEADER_BYTES = 14
"""Most bytes of a frame's header."""
ENDLESS = 2**64
"""Length of what follows a frame that no client may send. The library ends the connection."""


class Portions:
    """The bytes of one client, in portions.

    most: bytes of a message. A frame that declares more is passed on unchanged, and the library refuses it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._came: deque[memoryview] = deque()
        self._head = self._mask = b""
        self._left = self._later = self._fin = 0
        self._packed = False

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._came.append(memoryview(data))

    @property
    def waiting(self) -> bool:
        """Whether there are more bytes."""
        return bool(self._came)

    def take(self) -> bytes:
        """Return the next portion of the received bytes."""
        out, cost, frames = bytearray(), 0, 0
        while self._came and cost < PORTION_BYTES and frames < PORTION_FRAMES:
            data = self._came.popleft()
            at, whole = (0, 0) if self._left or self._head else self._whole(data)
            out += data[:at]
            cost += at
            frames += whole
            while at < len(data) and cost < PORTION_BYTES and frames < PORTION_FRAMES:
                before = len(out)
                at = self._payload(data, at, out) if self._left else self._header(data, at, out)
                cost += (len(out) - before) * (PACKED_COST if self._packed else 1)
                frames += not self._left
            if at < len(data):
                self._came.appendleft(data[at:])
        return bytes(out)

    def _whole(self, data: memoryview) -> tuple[int, int]:
        """Return how far whole frames reach that may stay as they are, and how many they are.

        That is all that most clients ever send: it takes a third of the time.
        """
        at = count = 0
        while count < PORTION_FRAMES and at + MAX_FRAME_HEADER_BYTES <= len(data):
            first, length = data[at], data[at + 1] - MASKED
            end = at + 6 + length
            if length == TWO:
                end = at + 8 + (data[at + 2] << 8 | data[at + 3])
            plain = _is_allowed(data[at : at + 2]) and not (first & PACKED or self._packed)
            if not plain or length == EIGHT or end > len(data) or end > PORTION_BYTES:
                break
            at, count = end, count + 1
        return at, count

    def _payload(self, data: memoryview, at: int, out: bytearray) -> int:
        end = min(len(data), at + min(self._left, PORTION_BYTES))
        out += data[at:end]
        self._left -= end - at
        if not self._left and self._later:
            self._begin(out, 0)
        return end

    def _header(self, data: memoryview, at: int, out: bytearray) -> int:
        """Take a frame's header, or the part of it that has arrived."""
        here = self._head + data[at : at + MAX_FRAME_HEADER_BYTES - len(self._head)]
        if len(here) >= 2 and not _is_allowed(here):
            out += here
            at += len(here) - len(self._head)
            self._head, self._left = b"", ENDLESS
            return at
        size = _header_size(here)
        if len(here) < size:
            self._head = here
            return len(data)
        at += size - len(self._head)
        self._head = b""
        self._start(here[:size], out)
        return at

    def _start(self, head: bytes, out: bytearray) -> None:
        first, length = head[0], _length(head)
        if first & 0x0F and not first & CONTROL_BIT:  # continuation and control frames do not begin a message
            self._packed = bool(first & PACKED)
        if first & CONTROL_BIT or not self._piece < length <= self._most:
            out += head
            self._left = length
            return
        self._fin, self._mask, self._later = first & FIN, head[-4:], length
        self._begin(out, first & ~FIN)

    @property
    def _piece(self) -> int:
        return PACKED_PIECE if self._packed else PORTION_BYTES

    def _begin(self, out: bytearray, first: int) -> None:
        """Begin the next fragment of a long frame."""
        self._left = min(self._later, self._piece)
        self._later -= self._left
        out.append(first | (0 if self._later else self._fin))
        size = (self._left,) if self._left < TWO else (TWO, *self._left.to_bytes(2, "big"))
        out += bytes((MASKED | size[0], *size[1:])) + self._mask


def _is_allowed(head: bytes | memoryview) -> bool:
    """Tell whether a client may begin a frame like this."""
    return bool(head[1] & MASKED) and not head[0] & OTHERS and head[0] & 0x07 <= 2


def _header_size(head: bytes) -> int:
    """Return the size of a header in bytes, or 2 if fewer than 2 of its bytes are given."""
    if len(head) < 2:
        return 2
    length = head[1] & ~MASKED
    return 6 + (2 if length == TWO else 8 if length == EIGHT else 0)


def _length(head: bytes) -> int:
    length = head[1] & ~MASKED
    return length if length < TWO else int.from_bytes(head[2 : 4 if length == TWO else 10], "big")
