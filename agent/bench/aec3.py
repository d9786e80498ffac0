"""WebRTC's echo canceller AEC3 in the place of our echo path, for the comparison in ``bench echo``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from rejoinder.models.hints import install
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.echo_path import ECHO_BLOCK, EchoPath
from rejoinder.pipeline.errors import PipelineError

AEC3_FRAME = RATE // 100
"""Samples in a frame of AEC3."""


class Aec3Path(EchoPath):
    """AEC3, from livekit. It finds the delay of the echo itself.

    It delays the audio by 16 ms: 8 are its own, and 8 are there because its frames are not our blocks. Raises
    PipelineError if livekit is not installed.
    """

    def __init__(self) -> None:
        if find_spec("livekit") is None:
            raise PipelineError(f"AEC3 needs livekit; run: {install('bench')}")
        from livekit.rtc import AudioFrame, AudioProcessingModule

        super().__init__()
        self.level = 1.0  # it does not report the level of the echo
        self._canceller: Any = AudioProcessingModule(echo_cancellation=True)
        self._frame: Any = AudioFrame
        self._block: bytes | None = None
        self._far = self._near = b""
        self._out = bytes(2 * (AEC3_FRAME - int(np.gcd(ECHO_BLOCK, AEC3_FRAME))))

    def play(self, block: Samples) -> None:
        """Add the next played block. If nothing was recorded during the last one, that was silence."""
        if self._block is not None:
            self._through(bytes(2 * ECHO_BLOCK))
        self._block = to_pcm(block)
        self._played += bool(block.any())

    def hear(self, block: Samples) -> tuple[Samples, float]:
        """Return the block without the echo, 16 ms late, and 1.0: AEC3 has attenuated the rest itself."""
        return AudioChunk(self._through(to_pcm(block)), RATE).samples(), 1.0

    def shift(self) -> None:
        """Do nothing: AEC3 follows the delay itself."""

    def doubt(self) -> None:
        """Do nothing: AEC3 follows the path itself."""

    def _through(self, block: bytes) -> bytes:
        self._far, self._near, self._block = self._far + (self._block or b""), self._near + block, None
        while len(self._near) >= 2 * AEC3_FRAME:
            far, near = (
                self._frame(bytearray(each[: 2 * AEC3_FRAME]), RATE, 1, AEC3_FRAME)
                for each in (self._far, self._near)
            )
            self._canceller.process_reverse_stream(far)
            self._canceller.set_stream_delay_ms(0)
            self._canceller.process_stream(near)
            self._far, self._near = self._far[2 * AEC3_FRAME :], self._near[2 * AEC3_FRAME :]
            self._out += bytes(near.data)
        clean, self._out = self._out[: 2 * ECHO_BLOCK], self._out[2 * ECHO_BLOCK :]
        return clean
