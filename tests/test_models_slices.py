"""Piper's graph cut in two: slices that sound like the whole, and voices that cannot be cut."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rejoinder.models.fetch import WeightsMissing, locate
from rejoinder.models.graph import halves, seam
from rejoinder.models.onnx import open_session
from rejoinder.models.piper import LENGTHS, SIZES, decoder, open_voice, silent_frames, slices
from rejoinder.models.voice import AUDIBLE
from rejoinder.models.window import add_window
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
    return decoder(halves(voice)[1], 1)


@pytest.fixture(scope="module")
def published(voice: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The decoder as it was published, without a window."""
    model = onnx.load(str(voice))
    path = tmp_path_factory.mktemp("published") / "decoder.onnx"
    tensor = seam(model.graph)
    onnx.save(onnx.utils.Extractor(model).extract_model([tensor], [model.graph.output[0].name]), str(path))
    session = open_session(path, 1)
    return lambda frames: session.run(None, {tensor: frames[np.newaxis]})[0].reshape(-1)


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


def same(pieces: list[NDArray[np.float32]], whole: NDArray[np.float32]) -> bool:
    joined = np.concatenate(pieces)
    assert len(joined) == len(whole)
    return bool(np.sqrt(np.mean((joined - whole) ** 2) / np.mean(whole**2)) < 0.005)


@pytest.mark.parametrize("count", [1, 5, 6, 12, 13, 14, 17, 24, 25, 64, 65, 72, 73, 74, 200, 10_000])
def test_slices_sound_like_the_whole(
    decode: Any, published: Any, frames: NDArray[np.float32], count: int
) -> None:
    frames = frames[:, :count]
    assert same(list(slices(frames, decode)), published(frames))


@pytest.mark.parametrize(
    "text", ["Yes.", "No.", "Okay.", "I'm sorry for any", "She says", "Let me look at that."]
)
def test_a_short_clause_is_sliced_and_sounds_like_the_whole(
    voice: Path, decode: Any, published: Any, text: str
) -> None:
    from piper import PiperVoice
    from piper.config import PiperConfig

    config = PiperConfig.from_dict(json.loads(Path(f"{voice}.json").read_text()))
    front = PiperVoice(session=open_session(halves(voice)[0], 1, LENGTHS), config=config)
    (phonemes,) = front.phonemize(text)
    made, lengths = front.phoneme_ids_to_audio(front.phonemes_to_ids(phonemes), include_alignments=True)
    silent = silent_frames(lengths, HOP)
    pieces, whole = list(slices(made, decode, silent)), published(made)
    assert same(pieces, whole)
    assert [len(audio) // HOP for audio in pieces[:2]] == [silent + SIZES[0], SIZES[1]]
    assert np.abs(whole[: silent * HOP]).max(initial=0.0) < 0.01  # -40 dBFS
    assert np.abs(pieces[0]).max() > AUDIBLE  # what is heard begins in the first slice


def test_slices_are_short(decode: Any, frames: NDArray[np.float32]) -> None:
    pieces = list(slices(frames, decode))
    assert len(pieces) >= 4
    assert all(len(audio) <= (SIZES[-1] + 8) * HOP for audio in pieces)


def test_silence_at_the_beginning_is_not_decoded(decode: Any, frames: NDArray[np.float32]) -> None:
    first, *others = slices(frames, decode, 4)
    assert not first[: 4 * HOP].any() and first[4 * HOP :].any()
    assert len(first) + sum(map(len, others)) == frames.shape[1] * HOP
    (only,) = slices(frames[:, :3], decode, 4)
    assert len(only) == 3 * HOP


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 5), (3, 8), (60, 108), (200, None), (0, None)])
def test_a_window_of_the_decoder_is_what_the_whole_has_there(
    decode: Any, published: Any, frames: NDArray[np.float32], start: int, stop: int | None
) -> None:
    stop = stop or frames.shape[1]
    assert decode(frames, start, stop) == pytest.approx(published(frames)[start * HOP : stop * HOP], abs=1e-5)


def test_a_decoder_of_one_step_gets_no_window() -> None:
    node = onnx.helper.make_node("Tanh", ["frames"], ["samples"])
    graph = onnx.helper.make_graph(
        [node], "decoder", [], [onnx.helper.make_empty_tensor_value_info("samples")]
    )
    with pytest.raises(ValueError, match="in steps"):
        add_window(graph)


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
