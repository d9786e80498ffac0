"""Silero VAD v6 through onnxruntime, without torch (https://github.com/snakers4/silero-vad, MIT)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.calm import Calm
from rejoinder.models.onnx import open_session
from rejoinder.models.silero_graph import regrouped
from rejoinder.pipeline.audio import RATE, AudioChunk, Samples
from rejoinder.pipeline.errors import ModelError

WINDOW = 512
"""Samples per decision, fixed by the model: 32 ms at 16 kHz."""
CONTEXT = 64
"""Samples of the previous window that the model sees before each window."""
GRAPH, INPUTS = "silero_vad_16k_sequence.onnx of silero-vad 6.2.3", ["input", "h", "c"]


class Silero:
    """The shared weights, regrouped as they are loaded.

    Raises ModelError for a file that has none, or another of Silero's graphs.
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        import onnx

        try:
            graph = regrouped(onnx.load(path))
        except KeyError:
            raise ModelError("silero", f"{path} is another graph than {GRAPH}") from None
        except Exception as error:  # protocol buffers' own, and those of the disk
            raise ModelError("silero", f"cannot load {path}: {error}") from error
        self._session = open_session(path, threads, graph=graph)

    def stream(self) -> SileroStream:
        """Open the state of one session."""
        return SileroStream(self._session)


class SileroStream:
    """The recurrent state of one session; memory does not grow.

    On a calm line windows are told of before they are judged, as silence: many at once, when it is over.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._state = [np.zeros((1, 1, 128), np.float32)] * 2
        self._audio: Samples = np.zeros(CONTEXT, np.float32)
        self._position = 0
        self._calm = Calm()
        self._told = 0  # windows at the beginning of the audio that were told of, and not judged

    def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Return (index after the last sample, probability of speech) for each window completed.

        Three windows at once take half the time of three by themselves: about 0.7 ms after a pause in which
        other work has emptied the caches. Raises ValueError for audio that is not at 16 kHz.
        """
        if chunk.rate != RATE:
            raise ValueError(f"Silero VAD listens at {RATE} Hz, not {chunk.rate}")
        self._audio = np.concatenate((self._audio, chunk.samples()))
        results: list[tuple[int, float]] = []
        while (waiting := (len(self._audio) - CONTEXT) // WINDOW - self._told) > 0:
            for probability in self._skip() or self._judge(min(waiting, self._calm.certain)):
                self._position += WINDOW
                results.append((self._position, float(probability)))
        return results

    def _power(self, window: int) -> float:
        samples = self._audio[CONTEXT + WINDOW * window : CONTEXT + WINDOW * (window + 1)]
        return float(np.dot(samples, samples))

    def _skip(self) -> list[float]:
        """Return what is told of the next window if it is not judged yet, else nothing."""
        if not self._calm.skips(self._power(self._told)):
            return []
        self._told += 1
        return [0.0]

    def _judge(self, count: int) -> list[float]:
        """Return the probabilities of so many windows; those before them bring the state to where it was."""
        told, count = self._told, self._told + count
        windows = [self._audio[WINDOW * i : WINDOW * (i + 1) + CONTEXT] for i in range(count)]
        given = dict(zip(INPUTS, (np.array(windows), *self._state), strict=True))
        found, *self._state = self._session.run(None, given)
        probabilities: list[float] = np.asarray(found, np.float32)[told:].tolist()
        for window, probability in enumerate(probabilities, told):
            self._calm.judged(self._power(window), probability)
        self._audio, self._told = self._audio[WINDOW * count :], 0
        return probabilities
