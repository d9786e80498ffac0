"""Make a clause's audio in slices, of which the first is heard while the others are being made.

A VITS voice draws a clause's frames from its text (the front), bends them with a flow, and makes samples of
them with a decoder. Flow and decoder see only some frames to either side of each, so both are run for no more
than the next slice.
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
"""Frames of 12 ms in the first slice, which somebody waits for, in the second, and in all others."""
OVERLAP_FRAMES = 8
"""Frames that the decoder sees on both sides of a slice: the audio then equals the whole's to 0.5 %."""
FLOW_GROWTH, FLOW_MOST = 6, 240
"""The flow bends so many times more frames whenever more are needed, as each run has overlap to pay for, but
no more than so many at once, some 20 ms in which nobody else is spoken to."""
FLOW_REST = 16
"""Fewer frames than this are not left for a run of their own."""
EARLY_FRAMES = 1
"""So long before the end of the silence with which Piper begins every sentence, sound may begin."""

Frames = NDArray[np.float32]
"""Frames of a clause: (channels, time)."""
Run = Callable[[Frames, int, int], NDArray[np.float32]]
"""Make what a part makes of frames, from one of them to before another."""


def open_part(path: Path, threads: int, cuda: bool = False) -> Run:
    """Open a part that has a window, the flow or the decoder. Raises ModelError."""
    session = open_session(path, threads, cuda=cuda)
    (entry,) = {each.name for each in session.get_inputs()} - {START, STOP}

    def run(frames: Frames, start: int, stop: int) -> NDArray[np.float32]:
        feed = {entry: frames[np.newaxis], START: np.array([start]), STOP: np.array([stop])}
        made: NDArray[np.float32] = session.run(None, feed)[0][0]
        return made

    return run


class FlowFrames:
    """A clause's frames behind the flow, of which as many are made as were asked for."""

    def __init__(self, latents: Frames, flow: Run) -> None:
        self._latents = latents
        self._flow = flow
        self._made = latents[:, :0]

    def between(self, start: int, stop: int) -> Frames:
        """Return the frames from one to before another, as far as the clause has them."""
        known, count = self._made.shape[1], self._latents.shape[1]
        if known < min(stop, count):
            end = max(stop, min(known * FLOW_GROWTH, known + FLOW_MOST))
            end = count if end + FLOW_REST > count else end
            self._made = np.concatenate((self._made, self._flow(self._latents, known, end)), axis=1)
        return self._made[:, start:stop]


def silent_frames(lengths: NDArray[np.int64], hop: int) -> int:
    """Return how many frames hold silence before the first sound.

    lengths: how many samples each phoneme takes. hop: how many a frame has.
    """
    return max(0, int(lengths[0]) // hop - EARLY_FRAMES)


def slices(flow: Run, decode: Run, latents: Frames, silent: int = 0) -> Iterator[Samples]:
    """Make the audio of the frames that a front has latents, in slices that join without a seam.

    silent: as many at the beginning are silence, and need no decoding.
    """
    latents = latents.reshape(len(latents), -1)  # a single one has lost its second axis
    count, frames = latents.shape[1], FlowFrames(latents, flow)
    start = silent = min(silent, count - 1)
    for size in chain(SIZES, repeat(SIZES[-1])):
        end = count if count - start - size < OVERLAP_FRAMES else start + size  # no crumb at the end
        left = max(0, start - OVERLAP_FRAMES)
        audio = decode(frames.between(left, end + OVERLAP_FRAMES), start - left, end - left).reshape(-1)
        hop = len(audio) // (end - start)
        yield audio if start != silent else np.concatenate((np.zeros(silent * hop, np.float32), audio))
        if end == count:
            return
        start = end
