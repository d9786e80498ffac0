"""This machine's microphone and speaker, through PortAudio and its threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from rejoinder.agent.client.handover import Handover
from rejoinder.agent.client.playback import Playback
from rejoinder.models.hints import install
from rejoinder.pipeline import PipelineError

BLOCK_SECONDS = 0.02
"""Length of one block of audio."""


class NoDevice(PipelineError):
    """There is no usable sound device, or no library to find one. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Device:
    """A sound device: PortAudio's number and name, and the rate to use, in hertz."""

    number: int
    name: str
    rate: int


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


def choose_device(kind: str, wanted: str | None) -> Device:
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
