"""Smart Turn v3: the probability that a turn is over, from its last 8 s (pipecat-ai/smart-turn, BSD-2).

``smart_turn.json`` holds another last layer for the same network. It is fitted to pauses after which people
went on and pauses after which they did not, and separates the two far better than the published layers
(docs/lab/turns.md), at no extra cost. ``rejoinder bench turns --fit`` makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.adapter import Adapter
from rejoinder.models.hints import VERIFY
from rejoinder.models.onnx.byte_weights import signed_weights_are_exact
from rejoinder.models.onnx.session import open_session
from rejoinder.models.turn.head import Head, load_head
from rejoinder.models.turn.smart_turn_graph import merged
from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError

SECONDS = 8
"""Length of the audio that the network sees."""
POOLED = "sum_1"
"""The tensor of the exported network that its last layers read: the pooled features."""
SIZE = 384
"""Number of pooled features."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The network's output.

    answer: probability from the published last layers that the turn is over.
    pooled: the features that these layers read, float32 [``SIZE``]; empty if the file has other tensor names.
    """

    answer: float
    pooled: Samples


FITTED_HEAD = load_head(Path(__file__).with_name("smart_turn.json"))
"""The fitted last layer that ships."""


class SmartTurn:
    """The acoustic turn model behind one engine. Raises ModelError if ``path`` cannot be loaded."""

    def __init__(self, path: Path, threads: int = 1, head: Head = FITTED_HEAD) -> None:
        ADAPTER.require()
        from faster_whisper.feature_extractor import FeatureExtractor

        self._mel = FeatureExtractor(chunk_length=SECONDS)
        self._session, named = _open(path, threads)
        self._head = head if named else None
        # No batching: sounds in a batch would share a quantization range and change each other's results.
        self.engine: Engine[Samples, Sound] = Engine("smart-turn", self._step, shares_state=False)

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the probability that the turn is over at the end of ``audio``.

        audio: float32 [samples] at 16 kHz, of which the last 8 s count. text: not used. Cancelling drops the
        request, or the result if the network already runs. Raises ModelError.
        """
        sound = await self.sound(audio)
        return self._head.probability(sound.pooled) if self._head else sound.answer

    async def sound(self, audio: Samples) -> Sound:
        """Return the network's output for ``audio``. Arguments and cancelling are as in ``probability``."""
        return await self.engine.run(audio)

    def close(self) -> None:
        """Stop the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Samples]) -> list[Sound]:
        return [self._run(audio) for audio in batch]

    def _run(self, audio: Samples) -> Sound:
        answer, *more = self._session.run(None, {"input_features": self._features(audio)[None]})
        pooled = more[0].reshape(SIZE) if more else np.zeros(0, np.float32)
        return Sound(float(answer.item()), pooled)

    def _features(self, audio: Samples) -> Samples:
        """Return Whisper's log-mel spectrogram of the audio, zero-padded on the left: float32 [80, 800]."""
        window = np.zeros(SECONDS * RATE, np.float32)
        tail = audio[-len(window) :]
        if len(tail):
            window[-len(tail) :] = tail
        window = (window - window.mean()) / np.sqrt(window.var() + 1e-7)  # as the model was trained
        features: Samples = self._mel(window, padding=0).astype(np.float32)
        return features[:, : SECONDS * 100]


def _open(path: Path, threads: int) -> tuple[Any, bool]:
    """Return the session, and whether it outputs the pooled features. Raises ModelError."""
    import onnx

    try:
        graph = merged(onnx.load(path), POOLED, signed_weights_are_exact())
        return open_session(path, threads, graph=graph), True
    except KeyError:  # another export of the network
        pass
    except ModelError:
        raise
    except Exception as error:  # errors of protocol buffers and of the file system
        raise ModelError("smart-turn", f"cannot load {path}: {error}; {VERIFY}") from error
    try:
        return open_session(path, threads, also=POOLED), True
    except ModelError:  # other tensor names: use the published last layers
        return open_session(path, threads), False


ADAPTER = Adapter(
    "smart-turn",
    lambda path, threads, placement: SmartTurn(path, threads),
    packages=("onnxruntime", "onnx", "faster_whisper"),
    extra="local",
    weights="smart-turn-v3.2",
    suffix=".onnx",
)
"""What the registry finds."""
