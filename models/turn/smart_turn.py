"""Smart Turn v3: does the sound of the last eight seconds end here? (pipecat-ai/smart-turn, BSD-2).

Its last layers were trained to say done or not done for all the world. ``smart_turn.json`` has another last
layer for the same network, fitted to pauses of people who went on and of people who did not: it tells the two
apart far better (docs/lab/turns.md), and costs nothing more. ``rejoinder bench turns --fit`` makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.onnx.session import open_session
from rejoinder.models.turn.head import Head, load_head
from rejoinder.models.turn.smart_turn_graph import merged
from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError

SECONDS = 8
POOLED, SIZE = "sum_1", 384
"""The tensor of the exported network that its last layers see: the sound, in so many numbers."""


@dataclass(frozen=True, slots=True)
class Sound:
    """What the network makes of audio: the answer of its own last layers, and what they saw.

    pooled: ``SIZE`` numbers, none where the file names its tensors otherwise.
    """

    answer: float
    pooled: Samples


HEAD = load_head(Path(__file__).with_name("smart_turn.json"))


class SmartTurn:
    """The acoustic turn model behind one engine. Its answer is the probability that the turn is over."""

    def __init__(self, path: Path, threads: int = 1, head: Head = HEAD) -> None:
        from faster_whisper.feature_extractor import FeatureExtractor

        self._mel = FeatureExtractor(chunk_length=SECONDS)
        self._session, named = _open(path, threads)
        self._head = head if named else None
        # One at a time: sounds that are rounded together would hear each other, and gain nothing.
        self.engine: Engine[Samples, Sound] = Engine("smart-turn", self._step)

    async def probability(self, audio: Samples, text: str) -> float:
        """Judge the end of ``audio`` (16 kHz; only its last eight seconds count). The text is not used."""
        sound = await self.sound(audio)
        return self._head.probability(sound.pooled) if self._head else sound.answer

    async def sound(self, audio: Samples) -> Sound:
        """Return what the network makes of the same audio."""
        return await self.engine.run(audio)

    def close(self) -> None:
        """End the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Samples]) -> list[Sound]:
        return [self._heard(audio) for audio in batch]

    def _heard(self, audio: Samples) -> Sound:
        answer, *more = self._session.run(None, {"input_features": self._features(audio)[None]})
        pooled = more[0].reshape(SIZE) if more else np.zeros(0, np.float32)
        return Sound(float(answer.item()), pooled)

    def _features(self, audio: Samples) -> Samples:
        """Return Whisper's log-mel spectrogram, [80, 800], of the audio padded on its left."""
        window = np.zeros(SECONDS * RATE, np.float32)
        tail = audio[-len(window) :]
        if len(tail):
            window[-len(tail) :] = tail
        window = (window - window.mean()) / np.sqrt(window.var() + 1e-7)  # as the model was trained
        features: Samples = self._mel(window, padding=0).astype(np.float32)
        return features[:, : SECONDS * 100]


def _open(path: Path, threads: int) -> tuple[Any, bool]:
    """Return the session, and whether it tells the pooled sound. Raises ModelError."""
    import onnx

    try:
        return open_session(path, threads, graph=merged(onnx.load(path), POOLED)), True
    except KeyError:  # somebody's own export
        pass
    except ModelError:
        raise
    except Exception as error:  # protocol buffers' own, and those of the disk
        raise ModelError("smart-turn", f"cannot load {path}: {error}") from error
    try:
        return open_session(path, threads, also=POOLED), True
    except ModelError:  # with other names: its own last layer has to do
        return open_session(path, threads), False
