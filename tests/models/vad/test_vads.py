"""All VADs, on recordings of speech, noise and silence."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from support import speech

from rejoinder.agent.bench.cases.recordings import background
from rejoinder.models.onnx.session import open_session
from rejoinder.models.vad.silence_skipping import SilenceSkipper
from rejoinder.models.vad.silero import CONTEXT_SAMPLES, WINDOW, Silero
from rejoinder.models.vad.silero_graph import regrouped
from rejoinder.models.weights.fetch import locate
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, joined
from rejoinder.pipeline.events import FloorEvent
from rejoinder.pipeline.interfaces import SharedVadStream, Vad
from rejoinder.pipeline.turns.endpointer import Endpointer

pytestmark = pytest.mark.weights
SPEECH = 0.5
SIZES = (1, 7, 160, 511, 513, 1600, 7001, 16_000)


@pytest.fixture(scope="module", params=["silero", "scripted:vad"])
def vad(request: pytest.FixtureRequest) -> Vad:
    return speech.model(request.param)


@pytest.fixture(scope="module")
def silero() -> Vad:
    return speech.model("silero")


@pytest.fixture(scope="module")
def spoken() -> AudioChunk:
    return speech.heard(speech.recordings("read_misc", 1)[0])


def probabilities(vad: Vad, samples: AudioChunk) -> list[float]:
    return [probability for _, probability in vad.stream().feed(samples)]


def share_of_speech(vad: Vad, names: Sequence[str], count: int = 0) -> float:
    every = [
        p
        for name in names
        for one in speech.recordings(name, count)
        for p in probabilities(vad, speech.heard(one))
    ]
    return sum(p > SPEECH for p in every) / len(every)


def test_speech_is_found_in_recordings_of_people(silero: Vad) -> None:
    for recording in [*speech.recordings("librispeech_test_other", 8), *speech.recordings("ljspeech")]:
        found = [p > SPEECH for p in probabilities(silero, speech.heard(recording))]
        assert sum(found) > len(found) / 2, recording.path.name
    assert share_of_speech(silero, ["speechocean762_adult"], 20) > 0.5


def test_almost_no_speech_is_found_in_noise_and_music(silero: Vad) -> None:
    assert share_of_speech(silero, ["noise"]) < 0.01
    assert share_of_speech(silero, ["music"]) < 0.05


@pytest.mark.parametrize("samples", [speech.silence(5), speech.noise(5, 0.001), speech.noise(5, 0.01)])
def test_no_speech_is_found_in_silence_and_hiss(vad: Vad, samples: Samples) -> None:
    assert max(probabilities(vad, speech.chunk(samples))) < SPEECH


def test_windows_end_in_order_and_incomplete_ones_wait(vad: Vad, spoken: AudioChunk) -> None:
    ends = [end for end, _ in vad.stream().feed(spoken)]
    size = ends[0]
    assert ends == list(range(size, len(spoken) + 1, size))
    stream = vad.stream()
    assert list(stream.feed(AudioChunk(b"", RATE))) == []
    assert list(stream.feed(AudioChunk(bytes(2 * (size - 1)), RATE))) == []
    assert [end for end, _ in stream.feed(AudioChunk(bytes(2), RATE))] == [size]


@pytest.mark.parametrize("size", SIZES)
def test_cutting_the_audio_elsewhere_changes_nothing(vad: Vad, spoken: AudioChunk, size: int) -> None:
    piece = next(spoken.slices(2 * RATE))
    stream = vad.stream()
    cut = [window for part in piece.slices(size) for window in stream.feed(part)]
    whole = list(vad.stream().feed(piece))
    assert [end for end, _ in cut] == [end for end, _ in whole]
    assert [p for _, p in cut] == pytest.approx([p for _, p in whole], abs=1e-5)  # sums are rounded


def test_network_equals_the_published_graph(silero: Vad) -> None:
    path = locate("silero-vad") / "silero_vad_16k_sequence.onnx"
    published, ours = open_session(path, 1), open_session(path, 1, graph=regrouped(onnx.load(path)))
    for name in ("phone_conversations", "music", "read_misc"):
        audio = speech.recordings(name, 1)[0].load(RATE)[: 20 * RATE]
        windows = np.lib.stride_tricks.sliding_window_view(audio, WINDOW + CONTEXT_SAMPLES)[::WINDOW]
        state = {"h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}
        for count in (len(windows), 7, 1):
            given = {"input": windows[:count], **state}
            right, found = published.run(None, given), ours.run(None, given)
            assert found[0].shape == (count,)
            for one, other in zip(right, found, strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(found[0], right[0], atol=1e-5)
            state = {"h": right[1], "c": right[2]}


def events(silero: Vad, pcm: AudioChunk) -> list[FloorEvent]:
    stream, floor = silero.stream(), Endpointer()
    windows = [window for part in pcm.slices(1920) for window in stream.feed(part)]
    return [event for end, probability in windows for event in floor.vad(end, probability)]


@pytest.mark.parametrize("db", [0, -20])
@pytest.mark.parametrize("name", ["phone_conversations", "noise", "an4", "ami_meeting_excerpts", "read_misc"])
def test_skipping_does_not_delay_speech_onset(
    silero: Vad, name: str, db: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for recording in speech.recordings(name, 3):
        audio = recording.load(RATE)
        line = background(audio, RATE, 4.0)
        pcm = speech.chunk(np.concatenate((line, audio, line)) * np.float32(10 ** (db / 20)))
        skipping = events(silero, pcm)
        with monkeypatch.context() as all_judged:
            all_judged.setattr(SilenceSkipper, "skips", lambda calm, power: False)
            assert events(silero, pcm) == skipping, recording.path.name


def test_a_calm_line_is_not_judged(silero: Vad) -> None:
    found = [p for _, p in silero.stream().feed(speech.chunk(speech.noise(4.0, 0.0005)))]
    assert sum(p == 0.0 for p in found) > len(found) / 2
    found = [p for _, p in silero.stream().feed(speech.chunk(speech.noise(4.0, 0.01)))]
    assert 0.0 not in found, "noise at -40 dBFS is always judged"


def test_streams_do_not_disturb_each_other(vad: Vad, spoken: AudioChunk) -> None:
    other = speech.chunk(speech.noise(spoken.seconds, 0.2))
    first, second = vad.stream(), vad.stream()
    windows: list[tuple[int, float]] = []
    for ours, theirs in zip(spoken.slices(700), other.slices(700), strict=True):
        windows.extend(first.feed(ours))
        second.feed(theirs)
    assert windows == list(vad.stream().feed(spoken))


class Runs:
    """The network's session. It records the number of sessions of each run; the first ``fails`` runs fail."""

    def __init__(self, silero: Silero, monkeypatch: pytest.MonkeyPatch, fails: int = 0) -> None:
        self.sessions: list[int] = []
        self._network, self._fails = silero._session, fails
        monkeypatch.setattr(silero, "_session", self)

    def run(self, names: None, given: dict[str, Any]) -> Any:
        self.sessions.append(given["h"].shape[1])
        if len(self.sessions) <= self._fails:
            raise RuntimeError("no memory")
        return self._network.run(names, given)


Windows = list[tuple[int, float]]


async def listen(stream: SharedVadStream, audio: AudioChunk) -> Windows:
    return [window for part in audio.slices(320) for window in await stream.feed_together(part)]


def assert_same(found: Windows, alone: Windows) -> None:
    assert [end for end, _ in found] == [end for end, _ in alone]
    assert [p for _, p in found] == pytest.approx([p for _, p in alone], abs=1e-5)


def talkers() -> list[AudioChunk]:
    """Return the audio of seven sessions: speech, in some after a calm line, noise and music."""
    people = [*speech.recordings("phone_conversations", 2), *speech.recordings("read_misc", 3)]
    others = [*speech.recordings("noise", 1), *speech.recordings("music", 1)]
    spoken = [next(speech.heard(one).slices(5 * RATE)) for one in [*people, *others]]
    lines = [speech.chunk(speech.noise(place % 3, 0.0005)) for place in range(len(spoken))]
    return [speech.join(pair) for pair in zip(lines, spoken, strict=True)]


def test_simultaneous_sessions_share_one_run(silero: Silero, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = talkers()
    alone = [silero.stream().feed(audio) for audio in heard]
    runs = Runs(silero, monkeypatch)

    async def together() -> list[Windows]:
        return await asyncio.gather(*(listen(silero.stream(), audio) for audio in heard))

    for found, right in zip(asyncio.run(together()), alone, strict=True):
        assert_same(found, right)
    assert max(runs.sessions) == len(heard)
    assert len(runs.sessions) < sum(runs.sessions) / 3


def test_cancel_before_the_run_leaves_other_sessions_unchanged(
    silero: Silero, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = talkers()
    alone = [silero.stream().feed(audio) for audio in heard]
    streams = [silero.stream() for _ in heard]
    runs = Runs(silero, monkeypatch)

    async def hang_up(gone: int) -> list[Windows | BaseException]:
        calls = [asyncio.create_task(listen(*pair)) for pair in zip(streams, heard, strict=True)]
        await asyncio.sleep(0)
        calls[gone].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(hang_up(0))
    assert isinstance(found[0], asyncio.CancelledError) and runs.sessions[0] == len(heard) - 1
    for windows, right in zip(found[1:], alone[1:], strict=True):
        assert isinstance(windows, list)
        assert_same(windows, right)
    _, _, *rest = heard[0].slices(320)  # two make the first window
    assert_same([window for part in rest for window in streams[0].feed(part)], alone[0])


def test_cancelled_session_that_goes_on_is_judged_once(silero: Silero) -> None:
    one, other, audio = silero.stream(), silero.stream(), talkers()[0]
    alone = silero.stream().feed(audio)
    first, second, *rest = audio.slices(320)

    async def hang_up_and_go_on() -> list[Windows]:
        call = asyncio.create_task(listen(one, joined([first, second])))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        return await asyncio.gather(listen(other, audio), listen(one, joined(rest)))

    for found in asyncio.run(hang_up_and_go_on()):
        assert_same(found, alone)


def test_cancel_withdraws_the_offered_stream(silero: Silero) -> None:
    async def hang_up() -> None:
        calls = [asyncio.create_task(silero.stream().feed_together(audio)) for audio in talkers()[:3]]
        await asyncio.sleep(0)
        assert len(silero._offered) == 3
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)

    asyncio.run(hang_up())
    assert silero._offered == []


def test_failed_run_fails_one_session_only(silero: Silero, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = talkers()
    alone = [silero.stream().feed(audio) for audio in heard]
    runs = Runs(silero, monkeypatch, fails=1)

    async def together() -> list[Windows | BaseException]:
        calls = [listen(silero.stream(), audio) for audio in heard]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(together())
    assert isinstance(found[0], RuntimeError) and runs.sessions[0] == len(heard)
    assert max(runs.sessions[1:]) == len(heard) - 1, "they are judged together again"
    for windows, right in zip(found[1:], alone[1:], strict=True):
        assert isinstance(windows, list)
        assert_same(windows, right)


@pytest.mark.parametrize("rate", [8000, 24_000, 48_000])
def test_another_rate_is_refused(vad: Vad, rate: int) -> None:
    with pytest.raises(ValueError, match=f"16000 Hz, not {rate}"):
        vad.stream().feed(AudioChunk(bytes(2048), rate))


def test_memory_does_not_grow_with_the_call(vad: Vad) -> None:
    stream, minute = vad.stream(), speech.chunk(speech.noise(60))
    sizes = []
    tracemalloc.start()
    try:
        for second, part in enumerate(minute.slices(RATE)):
            for piece in part.slices(320):
                stream.feed(piece)
            if second in (5, 59):
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 4 * RATE  # a minute of samples would be 60 times 4 * RATE bytes


def test_probabilities_are_between_0_and_1(vad: Vad, spoken: AudioChunk) -> None:
    found = np.array(probabilities(vad, spoken))
    assert ((found >= 0) & (found <= 1)).all()
