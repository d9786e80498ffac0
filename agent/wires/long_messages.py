"""Messages that are too long to keep whole: checked and cut piece by piece as they arrive. No I/O.

Only audio makes a message long. The audio is cut out of the text as it arrives, so the text to parse stays
short, and no step takes longer than one piece of the message.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap

import pybase64
from pydantic_core import from_json

MAX_TEXT = 2**17
"""Most characters of a message without its audio. They are kept in memory and parsed in one step."""
MAX_WHOLE = 2**18
"""Most bytes of a text message that is kept whole. A longer one is cut as it arrives."""
MAX_BINARY = 2**20
"""Most bytes of a binary message of any wire."""
SHORTEST = 4096
"""Shortest base64 that is cut out of a long text, in characters."""

_BASE64 = rb"[A-Za-z0-9+/=\\]"
_AUDIO = re.compile(
    # A run of at least SHORTEST base64 characters. JSON may escape "/", "+" and "=": PHP escapes the first,
    # .NET the second, Gson the third.
    rb"(?<!%b)(?=%b{%d})(?:[A-Za-z0-9+/=]++|\\/|\\u002[BbFf]|\\u003[Dd])++" % (_BASE64, _BASE64, SHORTEST)
)
SEARCH_BYTES = 2**16
"""Bytes that are searched at a time."""
BLOCK = 2**20
"""Bytes per memory map: the memory of a long message goes back to the system as a whole."""
ESCAPE = 6
"""Bytes of the longest JSON escape."""
BASE64_GROUP = 4
"""Characters of base64 that decode to 3 whole bytes."""
_ALPHABET = re.compile(rb"[A-Za-z0-9+/=]*+")


@dataclass(frozen=True, slots=True)
class Base64:
    """Long audio in base64, in pieces."""

    pieces: Sequence[memoryview]

    def __len__(self) -> int:
        """Return the number of base64 characters."""
        return sum(map(len, self.pieces))

    @property
    def size(self) -> int | None:
        """The decoded size in bytes, None where it is not base64."""
        tail = b"".join(piece[-2:] for piece in self.pieces[-2:])[-2:]
        padding = len(tail) - len(tail.rstrip(b"="))
        right = (
            len(self) % BASE64_GROUP == 0
            and sum(bytes(piece).count(b"=") for piece in self.pieces) == padding
        )
        return len(self) // BASE64_GROUP * 3 - padding if right else None

    def decoded(self) -> Iterator[bytes]:
        """Yield the decoded bytes, piece by piece. Raises binascii.Error where it is not base64."""
        rest = b""
        for piece in self.pieces:
            rest += piece
            whole = len(rest) - len(rest) % BASE64_GROUP
            yield pybase64.b64decode(rest[:whole], validate=True)
            rest = rest[whole:]


class Long:
    """One long message.

    size: bytes so far. binary: whether it is a binary message, of which nothing is kept. text: the text to
    parse, with a mark for each piece of audio that was cut out. too_long: whether ``text`` was cut off at
    ``MAX_TEXT``.
    """

    def __init__(self, binary: bool = False) -> None:
        self.size = 0
        self.binary = binary
        self.text = ""
        self.too_long = False
        self._mark = b"cut%b" % secrets.token_hex(8).encode()  # no JSON escape begins with "\c"
        self._kept = bytearray()
        self._came = bytearray()
        self._cut: list[memoryview] = []
        self._blocks: list[mmap] = []
        self._found = 0

    @classmethod
    def of(cls, text: str) -> Long:
        """Return the message of a text that is complete."""
        long = cls()
        long.feed(text.encode("utf-8", "replace"))
        long.end()
        return long

    def __len__(self) -> int:
        """The bytes of the message."""
        return self.size

    @property
    def is_found(self) -> bool:
        """Whether ``audio`` has returned every piece that was cut out; else another field had one."""
        return self._found == len(self._cut)

    def feed(self, piece: bytes | bytearray) -> None:
        """Take the next piece of the message."""
        self.size += len(piece)
        for at in range(0, len(piece), SEARCH_BYTES):
            if self.binary or self.too_long:
                return
            self._came += piece[at : at + SEARCH_BYTES]
            if len(self._came) < SEARCH_BYTES:
                return
            escape = self._came.find(b"\\", len(self._came) - ESCAPE + 1)  # it may go on in the next piece
            self._cut_out(escape if escape >= 0 else len(self._came))

    def end(self) -> None:
        """End the message and set ``text``. Raises UnicodeDecodeError."""
        self._cut_out(len(self._came))
        self.text = self._kept.decode(errors="ignore" if self.too_long else "strict")
        self._kept.clear()

    def audio(self, text: str) -> Base64 | None:
        """Return the audio that a string of ``text`` stands for, None where it has other characters too."""
        parts = re.split(rb"%b-(\d+)-" % self._mark, text.encode())
        self._found += len(parts) // 2
        if len(parts) == 1 or not all(_ALPHABET.fullmatch(part) for part in parts[::2]):
            return None
        pieces = (
            self._cut[int(part)] if number % 2 else memoryview(part) for number, part in enumerate(parts)
        )
        return Base64([piece for piece in pieces if piece])

    def _cut_out(self, end: int) -> None:
        self._kept += _AUDIO.sub(self._take, bytes(self._came[:end]))
        del self._came[:end]
        if len(self._kept) > MAX_TEXT:
            self.too_long = True
            del self._kept[MAX_TEXT:]
            self._came.clear()
            self._cut.clear()
            self._blocks.clear()

    def _take(self, found: re.Match[bytes]) -> bytes:
        audio = found[0]
        if b"\\" in audio:
            audio = from_json(b'"%b"' % audio).encode()
        if not self._blocks or self._blocks[-1].tell() + len(audio) > BLOCK:
            self._blocks.append(mmap(-1, BLOCK))
        start = self._blocks[-1].tell()
        self._blocks[-1].write(audio)
        self._cut.append(memoryview(self._blocks[-1])[start : start + len(audio)])
        return b"%b-%d-" % (self._mark, len(self._cut) - 1)
