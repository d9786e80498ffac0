"""The audio file of one recording: two channels at 16 kHz, the caller on the left, as FLAC or OGG/Opus.

Its methods block, so they run in the thread of the ``RecordingWriter``.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from rejoinder.agent.recording.disk import PRIVATE_FILE, write_whole
from rejoinder.agent.recording.timeline import PlayedAudio, RecordedBlock
from rejoinder.agent.settings.recording import Form
from rejoinder.pipeline import RATE
from rejoinder.pipeline.audio.chunk import to_float
from rejoinder.pipeline.audio.resample import ToSession

if TYPE_CHECKING:
    from rejoinder.agent.recording.sealing import SealedWriter

SUFFIXES: dict[Form, str] = {"flac": ".flac", "opus": ".ogg"}
"""The end of a file's name, by its format."""
SUBTYPES: dict[Form, tuple[str, str]] = {"flac": ("FLAC", "PCM_16"), "opus": ("OGG", "OPUS")}
"""soundfile's names of a format."""
FLAC_BLOCK_AT = 8
"""Place of the largest block size in a FLAC file: 2 bytes (RFC 9639, 8.2)."""
FLAC_SAMPLES_AT = 21
"""Place of the number of samples in a FLAC file: the last 36 bits of 5 bytes (RFC 9639, 8.2)."""
PIECE_SECONDS = 0.02
"""Two sounds of the agent that are closer than this, in seconds, are one."""

Stereo = NDArray[np.int16]
"""Samples of both sides: int16 of shape (samples, 2), the caller first."""


class _Guarded(io.RawIOBase):
    """Passes on to a file and keeps its first error: libsndfile calls it, through which none passes."""

    def __init__(self, file: io.IOBase | BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Buffer) -> int:
        """Write bytes; nothing more after an error."""
        if self.error is None:
            try:
                write_whole(self.file, data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self.file.tell()


class AudioFile:
    """Writes one file. Its methods raise OSError, once the disk is full for example.

    key: encrypts it, None for none. id: of the recording; a reader has to know it, too, if there is a key.
    spans: when the agent is heard, in seconds, with the number of the reply: (reply, begin, end).
    """

    def __init__(self, path: Path, form: Form, key: bytes | None, id: str = "") -> None:
        import soundfile

        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        self._path = path
        self._raw = os.fdopen(descriptor, "w+b", buffering=0)
        self._sealed: SealedWriter | None = None
        if key:
            from rejoinder.agent.recording.sealing import SealedWriter  # needs the extra record

            self._sealed = SealedWriter(self._raw, key, id)
        self._out = _Guarded(self._sealed or self._raw)
        self._flac = form == "flac"
        kind, subtype = SUBTYPES[form]
        self._encoder = soundfile.SoundFile(self._out, "w", RATE, 2, subtype, format=kind)
        self._samples = 0
        self._agent = _Agent()
        self.spans: list[tuple[int, float, float]] = []

    @property
    def seconds(self) -> float:
        """Duration of what is written."""
        return self._samples / RATE

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted while it was written, also once it is closed."""
        return not self._path.exists()

    def write(self, block: RecordedBlock) -> None:
        """Write the audio of both sides that follows."""
        audio: Stereo = np.zeros((block.end - block.start, 2), np.int16)
        for one in block.heard:
            first = one.at - block.start
            samples = np.frombuffer(one.pcm, "<i2")[max(0, -first) :]
            audio[max(0, first) :][: len(samples), 0] = samples[: len(audio) - max(0, first)]
        for piece in block.played:
            self._note(piece)
            self._agent.take(piece)
        audio[:, 1] = self._agent.read(block.end)
        self._encoder.write(audio)
        self._samples += len(audio)
        if self._out.error:
            raise self._out.error
        if self._flac and not self._sealed:
            self._write_length()

    def _note(self, piece: PlayedAudio) -> None:
        begin, seconds = piece.at / RATE, piece.chunk.seconds
        if self.spans:
            turn, first, last = self.spans[-1]
            if turn == piece.turn and abs(begin - last) < PIECE_SECONDS:
                self.spans[-1] = (turn, first, begin + seconds)
                return
        self.spans.append((piece.turn, begin, begin + seconds))

    def _write_length(self) -> None:
        """Write the number of samples in complete frames, so that a file can be read if the process dies."""
        place = self._raw.tell()
        self._raw.seek(FLAC_BLOCK_AT)
        block = int.from_bytes(self._raw.read(2), "big")
        self._raw.seek(FLAC_SAMPLES_AT)
        before = self._raw.read(5)
        self._raw.seek(FLAC_SAMPLES_AT)
        self._raw.write(with_samples(before, self._samples // block * block))
        self._raw.seek(place)

    def close(self) -> None:
        """Complete and close the file. After an error call ``give_up``. Raises RuntimeError, too."""
        self._encoder.close()
        if self._out.error:
            raise self._out.error
        if self._sealed:
            self._sealed.close()
        self._raw.close()

    def give_up(self) -> None:
        """Close the file after an error, so that what is in it can be read. Never raises."""
        if self._out.error is None:
            self._out.error = OSError("given up")  # the encoder writes no more
        with suppress(OSError, RuntimeError):
            self._encoder.close()
        with suppress(OSError):
            if self._sealed and not self._sealed.closed:
                self._sealed.give_up()
                self._sealed.close()
        with suppress(OSError):
            self._raw.close()


def with_samples(field: bytes, samples: int) -> bytes:
    """Return the 5 bytes of a FLAC header that hold the number of samples, with this number."""
    return bytes([field[0] & 0xF0 | samples >> 32 & 0x0F]) + (samples & 0xFFFFFFFF).to_bytes(4, "big")


class _Agent:
    """Puts the agent's audio together, at 16 kHz."""

    def __init__(self) -> None:
        self._resampler: ToSession | _Same | None = None
        self._at = 0
        self._end = 0
        self._audio: NDArray[np.int32] = np.zeros(0, np.int32)

    def take(self, piece: PlayedAudio) -> None:
        """Place the next piece of audio."""
        rate, resampler = piece.chunk.rate, self._resampler
        if not piece.follows or resampler is None or resampler.rate != rate:
            self._flush()
            self._end = round(piece.at)
            self._resampler = resampler = ToSession(rate) if rate != RATE else _Same()
        self._add(resampler.feed(piece.chunk.pcm))

    def _flush(self) -> None:
        if self._resampler is not None:
            rest = bytes(2 * self._resampler.rate // 1000 * 2)  # the filter holds back the last millisecond
            self._add(self._resampler.feed(rest))
            self._resampler = None

    def _add(self, samples: NDArray[np.float32]) -> None:
        first = self._end - self._at
        if first + len(samples) > len(self._audio):
            grown = np.zeros(first + len(samples), np.int32)
            grown[: len(self._audio)] = self._audio
            self._audio = grown
        kept = samples[max(0, -first) :]
        self._audio[max(0, first) :][: len(kept)] += (kept * 32767.0).astype(np.int32)
        self._end += len(samples)

    def read(self, end: int) -> NDArray[np.int16]:
        """Return the audio up to a sample."""
        size = end - self._at
        audio = np.zeros(size, np.int32)
        ready = self._audio[:size]
        audio[: len(ready)] = ready
        self._audio, self._at = self._audio[size:], end
        return np.clip(audio, -32768, 32767).astype(np.int16)


class _Same:
    """Takes audio that is at 16 kHz already."""

    rate = RATE

    def feed(self, pcm: bytes) -> NDArray[np.float32]:
        """Return its samples."""
        return to_float(pcm)


def flac_length(file: BinaryIO | io.BufferedIOBase) -> list[tuple[int, bytes]]:
    """Return what is to be written over the header of a FLAC file without a length: places and bytes.

    Such a file was not completed. It is decoded up to its last whole frame.
    """
    import soundfile

    file.seek(FLAC_SAMPLES_AT)
    field = file.read(5)
    if field != with_samples(field, 0):
        return []
    file.seek(0)
    samples = 0
    with suppress(soundfile.LibsndfileError), soundfile.SoundFile(file) as opened:
        while read := len(opened.read(RATE, dtype="int16")):
            samples += read
    return [(FLAC_SAMPLES_AT, with_samples(field, samples))]
