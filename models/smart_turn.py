"""Smart Turn v3: does the sound of the last eight seconds end here? (pipecat-ai/smart-turn, BSD-2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rejoinder.models.onnx import open_session
from rejoinder.pipeline.audio import RATE, Samples
from rejoinder.pipeline.engine import Engine

SECONDS = 8


class SmartTurn:
    """The acoustic turn model behind one engine. Its answer is the probability that the turn is over."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        from faster_whisper.feature_extractor import FeatureExtractor

        self._mel = FeatureExtractor(chunk_length=SECONDS)
        self._session = open_session(path, threads)
        self._engine: Engine[Samples, float] = Engine("smart-turn", self._step, max_batch=4)

    async def probability(self, audio: Samples, text: str) -> float:
        """Judge the end of ``audio`` (16 kHz; only its last eight seconds count). The text is not used."""
        return await self._engine.run(audio)

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()

    def _step(self, batch: Sequence[Samples]) -> list[float]:
        features = np.stack([self._features(audio) for audio in batch])
        (probabilities,) = self._session.run(None, {"input_features": features})
        return [float(probability) for probability in probabilities[:, 0]]

    def _features(self, audio: Samples) -> Samples:
        """Return Whisper's log-mel spectrogram, [80, 800], of the audio padded on its left."""
        window = np.zeros(SECONDS * RATE, np.float32)
        tail = audio[-len(window) :]
        if len(tail):
            window[-len(tail) :] = tail
        window = (window - window.mean()) / np.sqrt(window.var() + 1e-7)  # as the model was trained
        features: Samples = self._mel(window, padding=0).astype(np.float32)
        return features[:, : SECONDS * 100]
