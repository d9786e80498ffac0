"""A sound card without hardware."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

RATE = 48_000

BLOCK = RATE // 50

LOUD = (12_000 * np.sin(np.arange(BLOCK) * 0.05)).astype("<i2").tobytes()


class PortAudioError(Exception):
    """What sounddevice raises."""


class FakeStream:
    """A stream with a thread of its own that calls back in real time, as PortAudio's do."""

    def __init__(
        self, step: Callable[[Any], bool], callback: Any, finished_callback: Any, **how: Any
    ) -> None:
        self.how = how
        self._thread = threading.Thread(target=self._run, args=(step, callback, finished_callback))
        self._stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def close(self, ignore_errors: bool = True) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self, step: Callable[[Any], bool], callback: Any, finished: Any) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0.0, due - time.monotonic())) and step(callback):
            due += 0.02
        if finished:
            finished()


class FakeSounddevice:
    """Enough of sounddevice for one headset: speech for a second, then silence, unplugged once answered.

    interrupts: blocks of the answer after which there is speech again, for a second. least: blocks of sound
    that are heard before it is unplugged.
    """

    PortAudioError = PortAudioError

    def __init__(self) -> None:
        self.interrupts: int | None = None
        self.patience = 25
        self.least = 0
        self.infos = [
            dict(
                index=0,
                name="Headset",
                default_samplerate=48000.0,
                max_input_channels=1,
                max_output_channels=2,
            )
        ]
        self.heard = bytearray()
        self.opened: list[dict[str, Any]] = []
        self._recorded = self._answered = self._sounded = 0
        self._quiet: int | None = None

    def query_devices(self, device: Any = None, kind: str | None = None) -> Any:
        if kind is None:
            return self.infos
        if device in (None, 0, "Headset"):
            return self.infos[0]
        raise ValueError(f"No {kind} device matching {device!r}")

    def check_input_settings(self, samplerate: int, **how: Any) -> None:
        if samplerate != RATE:
            raise PortAudioError("Invalid sample rate [PaErrorCode -9997]")

    check_output_settings = check_input_settings

    def RawInputStream(self, **how: Any) -> FakeStream:
        self.opened.append(how)
        return FakeStream(self._record, **how)

    def RawOutputStream(self, **how: Any) -> FakeStream:
        self.opened.append(how)
        return FakeStream(self._play, **how)

    def _record(self, callback: Any) -> bool:
        self._recorded += 1
        spoken = self._answered - (self.interrupts or 0)
        again = self.interrupts is not None and 0 <= spoken < 50
        self._answered += bool(self._answered)
        callback(LOUD if self._recorded <= 50 or again else bytes(len(LOUD)), BLOCK, None, None)
        answered = (self._quiet or 0) >= self.patience and self._sounded >= self.least
        return self._recorded < 1000 and not answered

    def _play(self, callback: Any) -> bool:
        data = bytearray(2 * BLOCK)
        callback(data, BLOCK, None, None)
        self.heard += data
        if any(data):
            self._quiet = 0
            self._sounded += 1
            self._answered = self._answered or 1
        elif self._quiet is not None:
            self._quiet += 1
        return True
