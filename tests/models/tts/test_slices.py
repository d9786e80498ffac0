"""Piper's graph cut into three parts: slices that equal the whole, and voices that cannot be cut."""

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

from rejoinder.models.onnx.session import open_session
from rejoinder.models.tts import piper
from rejoinder.models.tts.graph import Parts, parts, seams
from rejoinder.models.tts.piper import LENGTHS, open_voice
from rejoinder.models.tts.slices import FLOW_REST, SIZES, FlowFrames, open_part, silent_frames, slices
from rejoinder.models.tts.window import COUPLING, STRETCH, add_window
from rejoinder.models.weights.fetch import WeightsMissing, locate
from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.audio.loudness import AUDIBLE

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
def cut(voice: Path) -> Parts:
    return parts(voice)


@pytest.fixture(scope="module")
def flow(cut: Parts) -> Any:
    return open_part(cut.flow, 1)


@pytest.fixture(scope="module")
def decode(cut: Parts) -> Any:
    return open_part(cut.decoder, 1)


@pytest.fixture(scope="module")
def published(voice: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The published graph after the front: in one part, with a mask and without a window."""
    model = onnx.load(str(voice))
    path = tmp_path_factory.mktemp("published") / "rest.onnx"
    latents, mask, _ = seams(model.graph)
    rest = onnx.utils.Extractor(model).extract_model([latents, mask], [model.graph.output[0].name])
    onnx.save(rest, str(path))
    session = open_session(path, 1)
    known: dict[bytes, Any] = {}  # several tests compare with the same sentence

    def speak(frames: NDArray[np.float32]) -> Any:
        if (key := frames.tobytes()) not in known:
            feed = {latents: frames[np.newaxis], mask: np.ones((1, 1, frames.shape[1]), np.float32)}
            known[key] = session.run(None, feed)[0].reshape(-1)
        return known[key]

    return speak


@pytest.fixture(scope="module")
def latents(cut: Parts) -> NDArray[np.float32]:
    """The latent frames of a real sentence. The front samples new noise in every run, so it runs once."""
    front = open_session(cut.front, 1)
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


@pytest.fixture(scope="module")
def config(voice: Path) -> Any:
    from piper.config import PiperConfig

    return PiperConfig.from_dict(json.loads(Path(f"{voice}.json").read_text()))


@pytest.fixture(scope="module")
def front(cut: Parts, config: Any) -> Any:
    """The voice that makes the latent frames, and their lengths."""
    from piper import PiperVoice

    return PiperVoice(session=open_session(cut.front, 1, LENGTHS), config=config)


@pytest.fixture(scope="module")
def uncut(voice: Path, config: Any) -> Any:
    from piper import PiperVoice

    return PiperVoice(session=open_session(voice, 1), config=config)


@pytest.fixture(scope="module")
def frames(flow: Any, latents: NDArray[np.float32]) -> Any:
    """The flow's output for the whole sentence, in one run."""
    return flow(latents, 0, latents.shape[1])


@pytest.fixture(scope="module")
def pieces(flow: Any, decode: Any, latents: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """The slices of the whole sentence."""
    return list(slices(flow, decode, latents))


@pytest.fixture
def short_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the loudness of a voice with a short sentence: it sets the gain only."""
    monkeypatch.setattr(piper, "LOUDNESS_SENTENCE", "Yes.")


def same(pieces: list[NDArray[np.float32]], whole: NDArray[np.float32]) -> bool:
    joined = np.concatenate(pieces)
    assert len(joined) == len(whole)
    return bool(np.sqrt(np.mean((joined - whole) ** 2) / np.mean(whole**2)) < 0.005)


@pytest.mark.parametrize("count", [1, 5, 6, 12, 13, 14, 17, 24, 25, 64, 65, 72, 73, 74, 200])
def test_slices_equal_the_uncut_decoder(
    flow: Any, decode: Any, published: Any, latents: NDArray[np.float32], count: int
) -> None:
    latents = latents[:, :count]
    assert same(list(slices(flow, decode, latents)), published(latents))


def test_slices_of_a_whole_sentence_equal_the_uncut_decoder(
    pieces: list[NDArray[np.float32]], published: Any, latents: NDArray[np.float32]
) -> None:
    assert latents.shape[1] > 200
    assert same(pieces, published(latents))


@pytest.mark.parametrize(
    "text", ["Yes.", "No.", "Okay.", "I'm sorry for any", "She says", "Let me look at that."]
)
def test_slices_of_a_short_clause_equal_the_uncut_decoder(
    front: Any, flow: Any, decode: Any, published: Any, text: str
) -> None:
    (phonemes,) = front.phonemize(text)
    made, lengths = front.phoneme_ids_to_audio(front.phonemes_to_ids(phonemes), include_alignments=True)
    silent = silent_frames(lengths, HOP)
    pieces, whole = list(slices(flow, decode, made, silent)), published(made)
    assert same(pieces, whole)
    assert [len(audio) // HOP for audio in pieces[:2]] == [silent + SIZES[0], SIZES[1]]
    assert np.abs(whole[: silent * HOP]).max(initial=0.0) < 0.01  # -40 dBFS
    assert np.abs(pieces[0]).max() > AUDIBLE  # audible sound begins in the first slice


@pytest.mark.parametrize(
    "text", ["Yes.", "Could you tell me a little more about that, please, so that I can help?"]
)
def test_front_and_slices_equal_the_uncut_voice(
    front: Any, flow: Any, decode: Any, uncut: Any, text: str
) -> None:
    """Compared without noise, which is sampled anew in each run."""
    from piper import SynthesisConfig

    calm = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)
    (phonemes,) = front.phonemize(text)
    ids = front.phonemes_to_ids(phonemes)
    whole = uncut.phoneme_ids_to_audio(ids, calm)
    made, lengths = front.phoneme_ids_to_audio(ids, calm, include_alignments=True)
    pieces = slices(flow, decode, made, silent_frames(lengths, HOP))
    assert same(list(pieces), whole)


def test_slices_are_short(pieces: list[NDArray[np.float32]]) -> None:
    assert len(pieces) >= 4
    assert all(len(audio) <= (SIZES[-1] + 8) * HOP for audio in pieces)


def test_silence_at_the_beginning_is_not_decoded(
    flow: Any, decode: Any, latents: NDArray[np.float32]
) -> None:
    latents = latents[:, :74]
    first, *others = slices(flow, decode, latents, 4)
    assert not first[: 4 * HOP].any() and first[4 * HOP :].any()
    assert len(first) + sum(map(len, others)) == latents.shape[1] * HOP
    (only,) = slices(flow, decode, latents[:, :3], 4)
    assert len(only) == 3 * HOP


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 5), (3, 8), (60, 108), (200, None), (0, None)])
def test_window_of_flow_and_decoder_equals_the_whole_run(
    flow: Any,
    decode: Any,
    published: Any,
    latents: NDArray[np.float32],
    frames: NDArray[np.float32],
    start: int,
    stop: int | None,
) -> None:
    stop = stop or latents.shape[1]
    assert flow(latents, start, stop) == pytest.approx(frames[:, start:stop], abs=1e-4)
    audio = decode(frames, start, stop).reshape(-1)
    assert audio == pytest.approx(published(latents)[start * HOP : stop * HOP], abs=1e-5)


def test_flow_first_makes_only_the_first_slice_then_the_rest_in_few_runs(
    flow: Any, latents: NDArray[np.float32], frames: NDArray[np.float32]
) -> None:
    runs: list[tuple[int, int]] = []

    def counted(frames: NDArray[np.float32], start: int, stop: int) -> Any:
        runs.append((start, stop))
        return flow(frames, start, stop)

    count = latents.shape[1]
    made = FlowFrames(latents, counted)
    assert made.between(0, 13).shape[1] == 13
    assert runs == [(0, 13)]
    for start in range(0, count, 40):
        assert made.between(start, start + 56) == pytest.approx(frames[:, start : start + 56], abs=1e-4)
    assert [start for start, _ in runs] == [0, *(stop for _, stop in runs[:-1])]
    assert runs[-1][1] == count and len(runs) <= 4
    FlowFrames(latents[:, : 13 + FLOW_REST - 1], counted).between(0, 13)
    assert runs[-1] == (0, 13 + FLOW_REST - 1)


@pytest.mark.parametrize("step", [STRETCH, COUPLING])
def test_a_part_without_steps_gets_no_window(step: str) -> None:
    node = onnx.helper.make_node("Tanh", ["frames"], ["samples"])
    graph = onnx.helper.make_graph(
        [node], "decoder", [], [onnx.helper.make_empty_tensor_value_info("samples")]
    )
    with pytest.raises(ValueError, match="no steps"):
        add_window(graph, step)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (("ReduceMean", ["x"], ["y"]), "the receptive field of ReduceMean is not known"),
        (
            ("Conv", ["x", "w"], ["y"], {"kernel_shape": [3], "dilations": [1], "pads": [2, 0]}),
            "a different padding on each side",
        ),
    ],
)
def test_part_with_unknown_receptive_field_gets_no_window(node: tuple[Any, ...], why: str) -> None:
    op, inputs, outputs, *attributes = node
    nodes = [onnx.helper.make_node(op, inputs, outputs, **(attributes[0] if attributes else {}))]
    nodes += [onnx.helper.make_node(COUPLING, [f"s{place}"], [f"t{place}"]) for place in range(2)]
    graph = onnx.helper.make_graph(nodes, "part", [], [onnx.helper.make_empty_tensor_value_info("y")])
    with pytest.raises(ValueError, match=why):
        add_window(graph, COUPLING)


def test_the_parts_are_made_once_and_again_for_another_voice(voice: Path) -> None:
    made = parts(voice)
    times = [part.stat().st_mtime_ns for part in made]
    assert parts(voice) == made
    assert [part.stat().st_mtime_ns for part in made] == times
    earlier = voice.stat().st_mtime - 3600  # as of a file that was moved here
    os.utime(voice, (earlier, earlier))
    assert not set(parts(voice)) & set(made) and all(part.exists() for part in parts(voice))


@pytest.mark.parametrize("broken", Parts._fields)
@pytest.mark.usefixtures("short_measure")
def test_broken_parts_fall_back_to_the_whole_voice(voice: Path, broken: str) -> None:
    path: Path = getattr(parts(voice), broken)
    whole_part = path.read_bytes()
    path.write_bytes(b"half of it")
    whole = open_voice(voice, 1)

    async def say() -> list[AudioChunk]:
        return [chunk async for chunk in whole.speak("Could you tell me a little more about that?")]

    try:
        audio, _silence = asyncio.run(say())
    finally:
        whole.close()
        path.write_bytes(whole_part)
    assert audio.seconds > 1.0


@pytest.mark.parametrize(
    ("renamed", "has_lengths", "why"),
    [
        ("/dec/", True, "the decoder has 0 tensors"),
        ("/dec/", False, "the decoder has 0 tensors"),
        ("/flow/", True, "the flow has 0 tensors"),
    ],
)
@pytest.mark.usefixtures("short_measure")
def test_a_voice_that_cannot_be_cut_is_spoken_whole(
    voice: Path, tmp_path: Path, renamed: str, has_lengths: bool, why: str
) -> None:
    graph = onnx.load(str(voice))
    for node in graph.graph.node:
        node.name = node.name.replace(renamed, "/other/")
        for names in () if has_lengths else (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = name.replace("/Ceil_", "/Lengths_")
    path = tmp_path / voice.name
    onnx.save(graph, str(path))
    shutil.copy(f"{voice}.json", f"{path}.json")
    with pytest.raises(ValueError, match=why):
        parts(path)
    whole = open_voice(path, 1)

    async def say() -> list[AudioChunk]:
        return [chunk async for chunk in whole.speak("Hello there.")]

    try:
        chunks = asyncio.run(say())
    finally:
        whole.close()
    assert [[characters for _, characters in chunk.words] for chunk in chunks] == [
        [5, 12] if has_lengths else []  # word times exist if the graph outputs their lengths
    ] * len(chunks)
    assert 0.4 < sum(chunk.seconds for chunk in chunks) < 2.0
