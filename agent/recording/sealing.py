"""Encryption of recordings: AES-256-GCM in numbered chunks, of which the last one is marked.

The construction is STREAM (Hoang, Reyhanitabar, Rogaway and Vizár, https://eprint.iacr.org/2015/189), with a
key for each file as in age (https://c2sp.org/age): HKDF-SHA-256 of the key and the file's header, which holds
a random salt. The nonce of a chunk is its number in 11 bytes and a byte that is 1 for the last one. So no
chunk can be changed, moved, left out or added, and no end can be cut off, without being noticed.

A FLAC encoder goes back at its end and writes the length into its header. A chunk must not be encrypted twice
with one nonce. So the last chunk holds what was written over earlier ones, too.
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from typing_extensions import Buffer

from rejoinder.agent.recording.disk import write_whole
from rejoinder.pipeline import PipelineError

MAGIC = b"RJREC\x01\r\n"
"""The first bytes of an encrypted recording. A transfer that changes line ends destroys them."""
KEY_BYTES = 32
"""Length of a key: AES-256."""
KEY_PATTERN = r"[0-9a-fA-F]{64}"
"""A key in a file: its bytes in hexadecimal digits."""
KEY_ID_BYTES = 8
"""Length of a key's id, which is the begin of its SHA-256."""
SALT_BYTES = 32
"""Length of a file's salt."""
HEADER_BYTES = len(MAGIC) + KEY_ID_BYTES + SALT_BYTES
"""Length of the header."""
CHUNK_BYTES = 2**14
"""Bytes of a chunk before encryption. What is not a whole chunk yet is lost with the process."""
TAG_BYTES = 16
"""Bytes that encryption adds to a chunk."""
LENGTH = struct.Struct(">I")
"""The length of the audio in the last chunk, which comes first in it."""
OVERWRITTEN = struct.Struct(">IH")
"""What was written over earlier bytes: their place and number. The bytes follow."""


class SealError(PipelineError):
    """A recording or a key cannot be used: the key is another one, or the file was changed or is cut off."""


def read_keys(path: Path) -> Sequence[bytes]:
    """Return the keys in a file, one of 64 hexadecimal digits a line. Raises SealError.

    The first one encrypts. All of them decrypt, so that a new key can be put in front of the old ones.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise SealError(f"the keys in {path} cannot be read: {error.strerror}") from None
    except ValueError:  # it is no text
        text = "?"
    lines = text.split()
    if not lines or not all(re.fullmatch(KEY_PATTERN, line) for line in lines):
        form = "keys of 64 hexadecimal digits, one a line"
        raise SealError(f"{path} must hold {form}; rejoinder recordings new-key makes one")
    return [bytes.fromhex(line) for line in lines]


def key_id(key: bytes) -> bytes:
    """Return what names a key in the header of a file."""
    return sha256(b"rejoinder recording key" + key).digest()[:KEY_ID_BYTES]


def _cipher(key: bytes, header: bytes, id: str) -> AESGCM:
    info = f"rejoinder recording {id}".encode()
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt=header, info=info).derive(key))


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


class SealedWriter(io.RawIOBase):
    """Encrypts what is written to it. Close it to write the last chunk. Its methods raise OSError.

    file: an empty file, which this closes. id: of the recording, without which nothing is decrypted: so the
    files of two recordings cannot change places.
    """

    def __init__(self, file: BinaryIO, key: bytes, id: str = "") -> None:
        self._file = file
        header = MAGIC + key_id(key) + os.urandom(SALT_BYTES)
        self._cipher = _cipher(key, header, id)
        self._number = 0
        self._size = self._place = 0
        self._rest = bytearray()
        self._over = bytearray()
        write_whole(file, header)

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: what is written further in front is kept for the last chunk."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, at most the end."""
        self._place = offset + (0, self._place, self._size)[whence]
        return self._place

    def write(self, data: Buffer) -> int:
        """Take bytes, and write the chunks that are complete."""
        given = bytes(data)
        over = given[: max(0, self._size - self._place)]
        if over:
            self._over += OVERWRITTEN.pack(self._place, len(over)) + over
        self._rest += given[len(over) :]
        self._place += len(given)
        self._size = max(self._size, self._place)
        while len(self._rest) > CHUNK_BYTES:
            self._seal(bytes(self._rest[:CHUNK_BYTES]), last=False)
            del self._rest[:CHUNK_BYTES]
        return len(given)

    def _seal(self, data: bytes, last: bool) -> None:
        place = self._file.tell()
        try:
            write_whole(self._file, self._cipher.encrypt(_nonce(self._number, last), data, None))
        except OSError:
            self._file.truncate(place)
            self._file.seek(place)
            raise
        self._number += 1

    def give_up(self) -> None:
        """Make room for the last chunk on a full disk: the last whole one is lost. Call ``close`` next."""
        self._rest.clear()
        self._over.clear()  # a FLAC file's length, which counts what is lost
        if self._number:
            # Its number is not used again for a chunk of this kind: the last one has a nonce of its own.
            self._number -= 1
            self._file.seek(HEADER_BYTES + self._number * (CHUNK_BYTES + TAG_BYTES))
            self._file.truncate()
        self._size = self._number * CHUNK_BYTES

    def close(self) -> None:
        """Write the last chunk, and close the file. Without room for it, the last whole one is lost."""
        if self.closed:
            return
        super().close()
        with self._file:
            try:
                self._seal_last()
            except OSError:
                if self._number:
                    self.give_up()
                    self._seal_last()  # without it the file could not be read
                raise

    def _seal_last(self) -> None:
        self._seal(LENGTH.pack(len(self._rest)) + bytes(self._rest + self._over), last=True)


class SealedReader(io.RawIOBase):
    """Decrypts a file, at any place. Raises SealError where no key fits, or the file was changed.

    file: this closes it. keys: one of them is that of the file. cut_off: read a file without a last chunk,
    up to its last whole chunk. id: as it was written.
    """

    def __init__(self, file: BinaryIO, keys: Sequence[bytes], cut_off: bool = False, id: str = "") -> None:
        self._file = file
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
            raise SealError("this is no encrypted recording")
        known: Mapping[bytes, bytes] = {key_id(key): key for key in keys}
        named = header[len(MAGIC) :][:KEY_ID_BYTES]
        if named not in known:
            raise SealError(f"the key {named.hex()} is needed, which is not among those given")
        self._cipher = _cipher(known[named], header, id)
        stored = file.seek(0, os.SEEK_END) - HEADER_BYTES
        self._whole = stored // (CHUNK_BYTES + TAG_BYTES)
        self._rest, self._over = b"", b""
        self._place = 0
        if not cut_off:
            self._read_last(stored)
        self._cached = (-1, b"")
        self.size = self._whole * CHUNK_BYTES + len(self._rest)

    def _read_last(self, stored: int) -> None:
        """Find the last chunk: it is longer than the others where much was written over earlier ones."""
        for number in range(self._whole, max(-1, self._whole - 2), -1):
            place = number * (CHUNK_BYTES + TAG_BYTES)
            self._file.seek(HEADER_BYTES + place)
            try:
                last = self._cipher.decrypt(_nonce(number, True), self._file.read(stored - place), None)
            except InvalidTag:
                continue
            (size,) = LENGTH.unpack_from(last)
            self._rest = last[LENGTH.size :][:size]
            self._over = last[LENGTH.size + size :]
            self._whole = number
            return
        raise SealError("the file was changed, or its end is missing")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        self._place = max(0, offset + (0, self._place, self.size)[whence])
        return self._place

    def readinto(self, buffer: Buffer) -> int:
        """Read up to the end of a chunk. Raises SealError."""
        view = memoryview(buffer).cast("B")
        number, inside = divmod(self._place, CHUNK_BYTES)
        data = self._chunk(number)[inside : inside + len(view)] if self._place < self.size else b""
        view[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _chunk(self, number: int) -> bytes:
        if number == self._cached[0]:
            return self._cached[1]
        if number == self._whole:
            chunk = bytearray(self._rest)
        else:
            self._file.seek(HEADER_BYTES + number * (CHUNK_BYTES + TAG_BYTES))
            sealed = self._file.read(CHUNK_BYTES + TAG_BYTES)
            try:
                chunk = bytearray(self._cipher.decrypt(_nonce(number, False), sealed, None))
            except InvalidTag:
                raise SealError(f"the file was changed at byte {number * CHUNK_BYTES}") from None
        at = 0
        while at < len(self._over):  # the header of a file: a few bytes
            place, size = OVERWRITTEN.unpack_from(self._over, at)
            for offset, byte in enumerate(self._over[at + OVERWRITTEN.size :][:size]):
                if (place + offset) // CHUNK_BYTES == number:
                    chunk[(place + offset) % CHUNK_BYTES] = byte
            at += OVERWRITTEN.size + size
        self._cached = (number, bytes(chunk))
        return self._cached[1]

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._file.close()
