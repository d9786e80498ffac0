"""Synthesise a clause in slices, so that the first slice plays while the others are synthesised.

A VITS voice samples the latent frames of a clause from its text (the front), transforms them with a
normalising flow, and decodes them to audio. Flow and decoder see only a few frames on either side of each
frame, so both run for little more than the next slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rejoinder.models.onnx.session import open_session
from rejoinder.models.tts.window import START, STOP
from rejoinder.pipeline.audio.chunk import Samples

SIZES = (6, 12, 48)
"""Frames of 12 ms in the first slice, in the second, and in each further slice. A short first slice keeps the
latency low."""
OVERLAP_FRAMES = 8
"""Frames that the decoder sees on each side of a slice: the audio differs from the whole by 0.5 % at most."""
FLOW_GROWTH = 6
"""Factor by which each run of the flow extends its frames, because each run has the cost of an overlap."""
FLOW_MOST = 240
"""Most frames in one run of the flow: about 20 ms, in which no other clause can be synthesised."""
FLOW_REST = 16
"""If fewer frames than this would remain, the current run of the flow includes them."""
EARLY_FRAMES = 1
"""Frames before the end of a sentence's initial silence in which sound may already begin."""

Frames = NDArray[np.float32]
"""Frames of a clause, float32 [channels, time]."""
Run = Callable[[Frames, int, int], NDArray[np.float32]]
"""Runs a part on frames and returns its output from the first frame up to, but without, the second one."""


def open_part(path: Path, threads: int) -> Run:
    """Open a part with a window, the flow or the decoder. Raises ModelError."""
    session = open_session(path, threads)
    (entry,) = {each.name for each in session.get_inputs()} - {START, STOP}

    def run(frames: Frames, start: int, stop: int) -> NDArray[np.float32]:
        feed = {entry: frames[np.newaxis], START: np.array([start]), STOP: np.array([stop])}
        made: NDArray[np.float32] = session.run(None, feed)[0][0]
        return made

    return run


class FlowFrames:
    """The frames of a clause after the flow, computed on demand."""

    def __init__(self, latents: Frames, flow: Run) -> None:
        self._latents = latents
        self._flow = flow
        self._made = latents[:, :0]

    def between(self, start: int, stop: int) -> Frames:
        """Return the frames ``start:stop``, cut to the length of the clause."""
        known, count = self._made.shape[1], self._latents.shape[1]
        if known < min(stop, count):
            end = max(stop, min(known * FLOW_GROWTH, known + FLOW_MOST))
            end = count if end + FLOW_REST > count else end
            self._made = np.concatenate((self._made, self._flow(self._latents, known, end)), axis=1)
        return self._made[:, start:stop]


def silent_frames(lengths: NDArray[np.int64], hop: int) -> int:
    """Return the number of silent frames before the first sound.

    lengths: samples of each phoneme, int64 of shape (phonemes,). hop: samples of a frame.
    """
    return max(0, int(lengths[0]) // hop - EARLY_FRAMES)


def slices(flow: Run, decode: Run, latents: Frames, silent: int = 0) -> Iterator[Samples]:
    """Synthesise the audio of a front's latent frames, in slices that join seamlessly.

    silent: number of frames at the beginning that are silence and are not decoded.
    """
    latents = latents.reshape(len(latents), -1)  # a single frame comes without its second axis
    count, frames = latents.shape[1], FlowFrames(latents, flow)
    start = silent = min(silent, count - 1)
    for size in chain(SIZES, repeat(SIZES[-1])):
        end = count if count - start - size < OVERLAP_FRAMES else start + size  # no tiny last slice
        left = max(0, start - OVERLAP_FRAMES)
        audio = decode(frames.between(left, end + OVERLAP_FRAMES), start - left, end - left).reshape(-1)
        hop = len(audio) // (end - start)
        yield audio if start != silent else np.concatenate((np.zeros(silent * hop, np.float32), audio))
        if end == count:
            return
        start = end
