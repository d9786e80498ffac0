"""Silero VAD v6 through onnxruntime, without torch (https://github.com/snakers4/silero-vad, MIT)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.hints import require
from rejoinder.models.onnx.session import open_session
from rejoinder.models.vad.silence_skipping import SilenceSkipper
from rejoinder.models.vad.silero_graph import regrouped
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples
from rejoinder.pipeline.errors import ModelError

WINDOW = 512
"""Samples per decision, fixed by the model: 32 ms at 16 kHz."""
CONTEXT = 64
"""Samples of the previous window that the model sees before each window."""
GRAPH, INPUTS = "silero_vad_16k_sequence.onnx of silero-vad 6.2.3", ["input", "h", "c"]


class Silero:
    """The shared weights, regrouped as they are loaded, and who waits for the next run.

    All streams belong to one event loop. Raises ModelError for a file that has none, or another of Silero's
    graphs.
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        require("silero")
        import onnx

        try:
            graph = regrouped(onnx.load(path))
        except KeyError:
            raise ModelError("silero", f"{path} is another graph than {GRAPH}") from None
        except Exception as error:  # protocol buffers' own, and those of the disk
            raise ModelError("silero", f"cannot load {path}: {error}") from error
        self._session = open_session(path, threads, graph=graph)
        self._offered: list[SileroStream] = []

    def stream(self) -> SileroStream:
        """Open the state of one session."""
        return SileroStream(self)

    def offer(self, stream: SileroStream) -> None:
        """Let whoever is judged next take this stream along, if as many windows of it are due."""
        self._offered.append(stream)

    def withdraw(self, stream: SileroStream) -> None:
        """Take back what a stream has offered."""
        self._offered = [one for one in self._offered if one is not stream]

    def judge(self, stream: SileroStream) -> None:
        """Judge what is due of a stream, in one run with those offered of which as much is.

        If that fails nothing has changed for the others, which are then judged by themselves.
        """
        count = stream.due
        group = dict.fromkeys([stream, *(one for one in self._offered if one.due == count)])
        self._offered = [one for one in self._offered if one.due not in (0, count)]
        windows = [one.window(place) for place in range(count) for one in group]
        states = [np.concatenate([one.state[part] for one in group], axis=1) for part in (0, 1)]
        given = dict(zip(INPUTS, (np.array(windows), *states), strict=True))
        found, *states = self._session.run(None, given)
        columns = np.asarray(found, np.float32).reshape(count, len(group)).T.tolist()
        for place, (one, probabilities) in enumerate(zip(group, columns, strict=True)):
            one.take(probabilities, [each[:, place : place + 1].copy() for each in states])


class SileroStream:
    """The recurrent state of one session; memory does not grow.

    On a calm line windows are told of before they are judged, as silence: many at once, when it is over.
    state: of the network, two of shape [1, 1, 128]. due: windows for the next run, 0 for none.
    """

    def __init__(self, shared: Silero) -> None:
        self.state = [np.zeros((1, 1, 128), np.float32)] * 2
        self.due = 0
        self._shared = shared
        self._audio: Samples = np.zeros(CONTEXT, np.float32)
        self._position = 0
        self._calm = SilenceSkipper()
        self._told = 0  # windows at the beginning of the audio that were told of, and not judged
        self._found: list[tuple[int, float]] = []

    def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Return (index after the last sample, probability of speech) for each window completed.

        Three windows at once take half the time of three by themselves: about 0.7 ms after a pause in which
        other work has emptied the caches. Raises ValueError for audio that is not at 16 kHz.
        """
        self._listen(chunk)
        return self._judged()

    async def feed_together(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Do the same, in one run with what other sessions hear in this turn of the event loop.

        Cancelling leaves what is not judged yet to the next time.
        """
        self._listen(chunk)
        if self.due:
            self._shared.offer(self)
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self._shared.withdraw(self)
                raise
        return self._judged()

    def window(self, place: int) -> Samples:
        """Return what the network is given for one of the windows that are due, with its context."""
        return self._audio[WINDOW * place : WINDOW * (place + 1) + CONTEXT]

    def take(self, probabilities: Sequence[float], state: list[Any]) -> None:
        """Take what was found in the windows that were due.

        Those that had been told of have only brought the state to where it was.
        """
        for place in range(self._told, len(probabilities)):
            self._calm.judged(self._power(place), probabilities[place])
            self._tell(probabilities[place])
        self.state = state
        self._audio, self._told = self._audio[WINDOW * len(probabilities) :], 0
        self._look()

    def _listen(self, chunk: AudioChunk) -> None:
        if chunk.rate != RATE:
            raise ValueError(f"Silero VAD listens at {RATE} Hz, not {chunk.rate}")
        self._audio = np.concatenate((self._audio, chunk.samples()))
        if not self.due:
            self._look()

    def _look(self) -> None:
        """Tell of the windows that are not judged yet, and find how many are due."""
        while waiting := (len(self._audio) - CONTEXT) // WINDOW - self._told:
            if not self._calm.skips(self._power(self._told)):
                break
            self._told += 1
            self._tell(0.0)
        self.due = self._told + min(waiting, self._calm.certain) if waiting else 0

    def _tell(self, probability: float) -> None:
        self._position += WINDOW
        self._found.append((self._position, probability))

    def _judged(self) -> list[tuple[int, float]]:
        while self.due:
            self._shared.judge(self)
        found, self._found = self._found, []
        return found

    def _power(self, place: int) -> float:
        samples = self._audio[CONTEXT + WINDOW * place : CONTEXT + WINDOW * (place + 1)]
        return float(np.dot(samples, samples))
