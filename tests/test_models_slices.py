"""Piper's graph cut in two: slices that sound like the whole, and voices that cannot be cut."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rejoinder.models.fetch import WeightsMissing, locate
from rejoinder.models.graph import halves
from rejoinder.models.onnx import open_session
from rejoinder.models.piper import FRAMES, open_voice, slices
from rejoinder.pipeline.audio import AudioChunk

onnx = pytest.importorskip("onnx")
pytest.importorskip("piper")
pytestmark = pytest.mark.weights
VOICE = "piper-en_US-joe-medium"
HOP = 256


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voice")
    try:
        found = locate(VOICE)
    except WeightsMissing as error:
        pytest.skip(str(error))
    for file in found.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    (path,) = folder.glob("*.onnx")
    return path


@pytest.fixture(scope="module")
def decode(voice: Path) -> Any:
    session = open_session(halves(voice)[1], 1)
    name = session.get_inputs()[0].name
    return lambda frames: session.run(None, {name: frames[np.newaxis]})[0].reshape(-1)


@pytest.fixture(scope="module")
def frames(voice: Path) -> NDArray[np.float32]:
    """The frames of a real sentence; the front's noise is drawn anew in every run, so it is run once."""
    front = open_session(halves(voice)[0], 1)
    ids = np.random.default_rng(3).integers(10, 60, 120)
    ids = np.stack([ids, np.zeros_like(ids)]).T.reshape(-1)  # Piper pads every phoneme
    made: NDArray[np.float32] = front.run(
        None,
        {
            "input": ids[np.newaxis],
            "input_lengths": np.array([len(ids)]),
            "scales": np.array([0.667, 1.0, 0.8], np.float32),
        },
    )[0][0]
    return made


@pytest.mark.parametrize("count", [1, 7, 15, 16, 17, 24, 64, 65, 71, 72, 73, 200, 10_000])
def test_slices_sound_like_the_whole(decode: Any, frames: NDArray[np.float32], count: int) -> None:
    frames = frames[:, :count]
    whole = decode(frames)
    pieces = list(slices(frames, decode))
    joined = np.concatenate(pieces)
    assert len(joined) == len(whole) == frames.shape[1] * HOP
    error = np.sqrt(np.mean((joined - whole) ** 2) / np.mean(whole**2))
    assert error < 0.005


def test_slices_are_short(decode: Any, frames: NDArray[np.float32]) -> None:
    pieces = list(slices(frames, decode))
    assert len(pieces) >= 3
    assert all(len(audio) <= (FRAMES + 8) * HOP for audio in pieces)


def test_the_halves_are_made_once_and_again_for_another_voice(voice: Path) -> None:
    front, back = halves(voice)
    made = back.stat().st_mtime_ns
    assert halves(voice) == (front, back)
    assert back.stat().st_mtime_ns == made
    earlier = voice.stat().st_mtime - 3600  # as of a file that was moved here
    os.utime(voice, (earlier, earlier))
    assert halves(voice)[1] != back and halves(voice)[1].exists()


def test_halves_that_are_broken_do_no_harm(voice: Path) -> None:
    halves(voice)[1].write_bytes(b"half of it")
    whole = open_voice(voice, 1)
    whole.close()
    halves(voice)[1].unlink()


@pytest.mark.parametrize("told", [True, False])
def test_a_voice_that_cannot_be_cut_is_spoken_whole(voice: Path, tmp_path: Path, told: bool) -> None:
    graph = onnx.load(str(voice))
    for node in graph.graph.node:
        node.name = node.name.replace("/dec/", "/vocoder/")
        for names in () if told else (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = name.replace("/Ceil_", "/Lengths_")
    path = tmp_path / voice.name
    onnx.save(graph, str(path))
    shutil.copy(f"{voice}.json", f"{path}.json")
    with pytest.raises(ValueError, match="0 tensors"):
        halves(path)
    whole = open_voice(path, 1)

    async def say() -> list[AudioChunk]:
        return [chunk async for chunk in whole.speak("Hello there.")]

    try:
        chunks = asyncio.run(say())
    finally:
        whole.close()
    assert [[characters for _, characters in chunk.words] for chunk in chunks] == [
        [5, 12] if told else []  # words are told wherever the graph knows how long they are
    ] * len(chunks)
    assert 0.4 < sum(chunk.seconds for chunk in chunks) < 2.0
