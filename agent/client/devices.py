"""This machine's microphone and speaker, through PortAudio and its threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from rejoinder.models.hints import install
from rejoinder.pipeline import AudioChunk, PipelineError, to_float, to_pcm

BLOCK_SECONDS = 0.02
"""Length of one block of audio."""
HANDOVER_BLOCKS = 50
"""Most recorded blocks (one second) that wait for a busy loop; after that the oldest are dropped."""
PLAYBACK_SECONDS = 1.0
"""Most audio that waits for a stalled speaker. A session sends only 0.2 s ahead, so more is late."""


class NoDevice(PipelineError):
    """There is no usable sound device, or no library to find one. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Device:
    """A sound device: PortAudio's number and name, and the rate to use, in hertz."""

    number: int
    name: str
    rate: int


class Handover:
    """Passes recorded blocks from PortAudio's thread to the event loop that created this object.

    dropped: number of blocks that were dropped because the loop was busy.
    """

    def __init__(self, size: int = HANDOVER_BLOCKS) -> None:
        self.dropped = 0
        self._size = size
        self._blocks: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def put(self, block: bytes) -> None:
        """Add a block. Any thread may call this; it never waits."""
        with self._lock:
            if len(self._blocks) >= self._size:
                self._blocks.popleft()
                self.dropped += 1
            self._blocks.append(block)
        self._wake()

    def close(self) -> None:
        """End the stream after the queued blocks. Any thread may call this."""
        self._closed = True
        self._wake()

    async def get(self) -> bytes | None:
        """Return the next block, or None at the end of the stream. Cancelling loses no block."""
        while True:
            self._changed.clear()
            with self._lock:
                if self._blocks:
                    return self._blocks.popleft()
            if self._closed:
                return None
            await self._changed.wait()

    def _wake(self) -> None:
        if not self._loop.is_closed():  # a device may outlive the conversation by a block
            self._loop.call_soon_threadsafe(self._changed.set)


class Playback:
    """Passes 16-bit mono audio to PortAudio's thread, which takes it at the pace of playing.

    dropped: number of bytes that were dropped because the speaker did not keep up.
    """

    def __init__(self, rate: int, seconds: float = PLAYBACK_SECONDS) -> None:
        self.dropped = 0
        self._limit = 2 * int(seconds * rate)
        self._pcm = bytearray()
        self._held = False
        self._lock = threading.Lock()

    def put(self, pcm: bytes) -> None:
        """Queue audio; drop the oldest audio above the limit."""
        with self._lock:
            self._pcm += pcm
            if (excess := len(self._pcm) - self._limit) > 0:
                del self._pcm[:excess]
                self.dropped += excess

    def take(self, size: int) -> bytes:
        """Return exactly ``size`` bytes, padded with silence."""
        with self._lock:
            ready = 0 if self._held else size
            pcm = bytes(self._pcm[:ready])
            del self._pcm[:ready]
        return pcm.ljust(size, b"\0")

    @property
    def waiting(self) -> int:
        """Bytes that the speaker has not taken."""
        return len(self._pcm)

    def clear(self) -> int:
        """Drop the queued audio and return its size in bytes. The speaker is silent until ``put``."""
        with self._lock:
            unheard = len(self._pcm)
            self._pcm.clear()
            self._held = False
        return unheard

    def hold(self) -> None:
        """Play silence and keep the queued audio."""
        self._held = True

    def release(self) -> None:
        """Continue at the sample at which ``hold`` stopped."""
        self._held = False


class Converter:
    """Resamples streams of chunks to one rate, and keeps the filter's state between chunks."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._from = 0
        self._stream: Any = None

    def convert(self, chunk: AudioChunk) -> bytes:
        """Return the resampled 16-bit audio, up to 40 ms late. A chunk with start 0 begins a new stream."""
        import soxr

        if chunk.rate == self._rate:
            return chunk.pcm
        if chunk.start == 0 or chunk.rate != self._from:
            self._stream = soxr.ResampleStream(chunk.rate, self._rate, 1, dtype="float32", quality="HQ")
            self._from = chunk.rate
        resampled = self._stream.resample_chunk(to_float(chunk.pcm))
        return to_pcm(np.asarray(resampled, np.float32))

    def finish(self) -> bytes:
        """End the stream, and return the 16-bit audio that the filter still holds."""
        stream, self._stream, self._from = self._stream, None, 0
        if stream is None:
            return b""
        return to_pcm(np.asarray(stream.resample_chunk(np.zeros(0, np.float32), last=True), np.float32))


def portaudio() -> Any:
    """Return the sounddevice module. Raises NoDevice if it or PortAudio is not installed."""
    try:
        return import_module("sounddevice")
    except ImportError:
        raise NoDevice(f"sounddevice is not installed; run: {install('mic')}") from None
    except OSError as error:
        raise NoDevice(
            f"{error}; run: apt install libportaudio2 (elsewhere than Debian: install PortAudio)"
        ) from None


def list_devices() -> list[tuple[Device, int, int]]:
    """Return each device with its numbers of input and output channels. Raises NoDevice if none exists."""
    found = [
        (
            Device(info["index"], info["name"], int(info["default_samplerate"])),
            info["max_input_channels"],
            info["max_output_channels"],
        )
        for info in portaudio().query_devices()
    ]
    if not found:
        raise NoDevice(
            "there is no sound device on this machine; connect a headset, or talk from a browser: "
            "rejoinder serve (from elsewhere through ssh -L 8080:localhost:8080)"
        )
    return found


def choose(kind: str, wanted: str | None) -> Device:
    """Return a device. Raises NoDevice.

    kind: "input" or "output". wanted: its number or part of its name, None for the default device.
    """
    list_devices()
    sounddevice = portaudio()
    given = int(wanted) if wanted is not None and wanted.isdigit() else wanted
    try:
        info = sounddevice.query_devices(given, kind)
    except (ValueError, sounddevice.PortAudioError) as error:
        reason = str(error).splitlines()[0].rstrip(":") if wanted else f"there is no default {kind} device"
        raise NoDevice(f"{reason}; choose with --{kind} from: rejoinder talk --list-devices") from None
    return Device(info["index"], info["name"], int(info["default_samplerate"]))


def at_rate(kind: str, device: Device, rate: int) -> Device:
    """Return the device at ``rate`` if it supports that rate, otherwise unchanged.

    Most systems convert the rate themselves. Then ``Converter`` is not needed, which saves up to 40 ms.
    """
    sounddevice = portaudio()
    check = getattr(sounddevice, f"check_{kind}_settings")
    try:
        check(device=device.number, channels=1, dtype="int16", samplerate=rate)
    except sounddevice.PortAudioError:
        return device
    return replace(device, rate=rate)


@contextmanager
def microphone(device: Device, handover: Handover) -> Iterator[None]:
    """Record at the device's rate while the block runs. Raises NoDevice."""

    def recorded(data: Any, frames: int, time: object, status: object) -> None:
        handover.put(bytes(data))

    with _stream("RawInputStream", device, recorded, handover.close):
        yield


@contextmanager
def speaker(device: Device, playback: Playback) -> Iterator[None]:
    """Play at the device's rate while the block runs. Raises NoDevice."""

    def play(data: Any, frames: int, time: object, status: object) -> None:
        data[:] = playback.take(2 * frames)

    with _stream("RawOutputStream", device, play, None):
        yield


@contextmanager
def _stream(kind: str, device: Device, callback: Any, finished: Any) -> Iterator[None]:
    sounddevice = portaudio()
    try:
        stream = getattr(sounddevice, kind)(
            samplerate=device.rate,
            blocksize=int(BLOCK_SECONDS * device.rate),
            device=device.number,
            channels=1,
            dtype="int16",
            latency="low",
            callback=callback,
            finished_callback=finished,
        )
        stream.start()
    except sounddevice.PortAudioError as error:
        raise NoDevice(
            f"cannot open {device.name}: {error}; choose another: rejoinder talk --list-devices"
        ) from error
    try:
        yield
    finally:
        stream.close(ignore_errors=True)
