"""All speech recognisers, on recordings with known words and on sounds without words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ctranslate2 import Device, StorageView
from support import speech

from rejoinder.agent.bench.cases.recordings import Recording, speech_end
from rejoinder.agent.bench.turns.cases import gaps
from rejoinder.models.stt.whisper import Whisper, Words, ending, head_of, name_of, on_host
from rejoinder.models.weights.fetch import locate
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Stt, SttStream

pytestmark = pytest.mark.weights
LONGEST = 24 + 8
"""Most seconds of audio that a stream holds if it transcribes every 8 s."""


@pytest.fixture(scope="module")
def whisper() -> Iterator[Any]:
    model = speech.model("whisper:tiny.en")
    yield model
    model.close()


@pytest.fixture(params=["whisper", "scripted:stt|hello there you"])
def stt(request: pytest.FixtureRequest) -> Stt:
    spec = request.param
    model: Stt = request.getfixturevalue("whisper") if spec == "whisper" else speech.model(spec)
    return model


def run(coroutine: Any) -> Any:
    with asyncio.Runner(debug=True) as runner:
        return runner.run(coroutine)


def words(stt: Stt, *utterances: AudioChunk) -> list[str]:
    """Recognise the utterances concurrently, each in a stream of its own."""

    async def one(audio: AudioChunk) -> str:
        return await final(stt.stream(), audio)

    async def together() -> list[str]:
        return await asyncio.gather(*map(one, utterances))

    texts: list[str] = run(together())
    return texts


@cache
def alone(stt: Stt, recording: Recording) -> str:
    """Recognise a whole recording; several tests compare with the same ones."""
    (text,) = words(stt, speech.heard(recording))
    return text


async def final(stream: SttStream, audio: AudioChunk) -> str:
    stream.feed(audio)
    transcript = await stream.transcribe(is_final=True)
    assert transcript.is_final
    assert transcript.end == audio.end
    return transcript.text


def test_recordings_are_transcribed(whisper: Stt) -> None:
    chosen = [
        *speech.recordings("ljspeech", 4),
        *[one for one in speech.recordings("read_misc", 6) if one.text],
    ]
    texts = [alone(whisper, one) for one in chosen]
    assert speech.word_error_rate([one.text or "" for one in chosen], texts) < 0.12


def test_partials_do_not_change_the_final(whisper: Stt) -> None:
    async def streamed(audio: AudioChunk) -> tuple[list[str], str]:
        stream, partials = whisper.stream(), []
        for piece in audio.slices(2 * RATE):
            stream.feed(piece)
            transcript = await stream.transcribe(is_final=False)
            assert not transcript.is_final
            assert transcript.end == piece.end
            partials.append(transcript.text)
        return partials, (await stream.transcribe(is_final=True)).text

    for recording in speech.recordings("ljspeech", 2):
        audio = speech.heard(recording)
        partials, text = run(streamed(audio))
        assert text == partials[-1] == alone(whisper, recording)
        assert len(partials[1].split()) < len(text.split())


@pytest.mark.parametrize("size", [0, 1, 100, 800])
@pytest.mark.parametrize("level", [0.0, 0.1])
def test_very_short_audio_has_no_words(whisper: Stt, size: int, level: float) -> None:
    assert words(whisper, speech.chunk(speech.noise(1.0, level)[:size])) == [""]


def test_without_audio_there_are_no_words(stt: Stt) -> None:
    async def never_fed() -> list[str]:
        stream = stt.stream()
        nothing = (await stream.transcribe(is_final=True)).text
        return [nothing, await final(stream, AudioChunk(b"", RATE))]

    assert run(never_fed()) == ["", ""]


@pytest.mark.parametrize(
    "sound",
    [
        *[speech.silence(seconds) for seconds in (0.2, 2, 10, 26)],
        *[speech.noise(4, level) for level in (0.0001, 0.01, 0.1)],
        (0.1 * np.sin(2 * np.pi * 50 * np.arange(4 * RATE) / RATE)).astype(np.float32),
        np.full(2 * RATE, 0.5, np.float32),
    ],
    ids=["0.2 s", "2 s", "10 s", "26 s", "dither", "hiss", "loud hiss", "hum", "offset"],
)
def test_silence_and_hiss_have_no_words(whisper: Stt, sound: Samples) -> None:
    assert words(whisper, speech.chunk(sound)) == [""]


@pytest.mark.parametrize("name", ["noise", "music"])
def test_recordings_without_speech_have_no_words(whisper: Stt, name: str) -> None:
    invented = {
        one.path.name: text
        for one in speech.recordings(name)
        for text in words(whisper, speech.heard(one))
        if text
    }
    assert invented == {}


@pytest.mark.parametrize(
    "text, no_speech, confidence, kept",
    [
        ("Thank you.", 0.1, -0.2, "Thank you."),
        ("Today", 0.06, -1.9, "Today"),
        ("Thank you.", 0.9, -0.2, "Thank you."),
        ("Thank you.", 0.7, -1.1, ""),
        ("Music", 0.25, -3.6, ""),
        ("And the dog", 0.4, -1.9, "And the dog"),
        (". . .", 0.1, -0.2, ""),
        ("♪", 0.1, -0.2, ""),
    ],
)
def test_doubtful_words_are_dropped(
    whisper: Any, monkeypatch: pytest.MonkeyPatch, text: str, no_speech: float, confidence: float, kept: str
) -> None:
    monkeypatch.setattr(whisper.engine, "_step", lambda batch: [Words(text, no_speech, confidence)])
    assert words(whisper, speech.chunk(speech.noise(1))) == [kept]


def test_single_word_has_alternatives(whisper: Any) -> None:
    """Longer audio has no alternatives. The most likely hypothesis is the transcript."""
    one = next(each for each in speech.recordings("an4") if each.text)
    heard = speech.heard(one)

    async def read(seconds: float) -> tuple[str, tuple[str, ...]]:
        stream = whisper.stream()
        stream.feed(next(heard.slices(int(seconds * RATE))))
        transcript = await stream.transcribe(is_final=True)
        assert transcript.text == await whisper.recognise(stream._audio())
        return transcript.text, transcript.alternatives

    text, others = asyncio.run(read(0.8))
    assert text and others and text not in others
    assert asyncio.run(read(2.0))[1] == ()


def test_ending_is_the_encoder_state_at_the_end_of_audio() -> None:
    states = np.zeros((500, 3), np.float32)
    states[98:100, 0] = 4.0
    states[25:90, 1] = 7.0
    states[100:, 2] = 1.0  # after the end of the audio
    spans = [[4, 0, 0], [0, 0, 0], [0, 7 / 3, 0], [0, 7, 0], [0, 7, 0], [0, 3.5, 0]]
    assert ending(states, 2 * RATE) == pytest.approx(np.ravel(spans))
    assert ending(states, 2 * RATE, ((2, 0), (75, 10))) == pytest.approx([4, 0, 0, 0, 7, 0])
    assert np.isfinite(ending(states, RATE // 10)).all() and len(ending(states, 60 * RATE)) == 18


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/cache/weights/whisper-tiny.en", "tiny.en"),
        ("/models/faster-whisper-large-v3-turbo", "large-v3-turbo"),
        ("/hub/models--Systran--faster-whisper-large-v3/snapshots/0a1b", "large-v3"),
        ("/hub/models--someone--whisper-base.en/snapshots/0a1b", "base.en"),
    ],
)
def test_whisper_name_comes_from_its_folder(folder: str, name: str) -> None:
    assert name_of(Path(folder)) == name
    assert (head_of(name) is None) == (name != "tiny.en")


def test_states_of_a_gpu_are_fetched() -> None:
    """Without a GPU: a fake object claims that its states are in GPU memory."""
    here = StorageView.from_array(np.ones((2, 3, 4), np.float16))

    class There:
        device = "cuda"

        def to_device(self, device: Device) -> StorageView:
            return here.to_device(device)

    for encoded in (here, There()):
        states = on_host(encoded)
        assert states.shape == (2, 3, 4) and ending(states[0], RATE).dtype == np.float32


def test_other_languages_have_no_end_probability() -> None:
    german = speech.model("whisper:base@de")
    try:
        words = asyncio.run(german.words(speech.heard(speech.recordings("an4")[0]).samples()))
    finally:
        german.close()
    assert words.text and words.over is None


@pytest.fixture(params=["tiny.en", "base"])
def teller(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each Whisper that has an end-of-turn layer."""
    if request.param == "tiny.en":
        yield request.getfixturevalue("whisper")
        return
    model = speech.model(f"whisper:{request.param}")
    yield model
    model.close()


def test_end_probability_is_higher_at_ends_than_at_pauses(teller: Any) -> None:
    """A recording that is cut at a gap between its words rarely sounds like the end of a turn."""
    whole = speech.recordings("librispeech_test_other", 8, seconds=10.0)

    async def over(audio: Samples) -> float:
        found = (await teller.words(audio)).over
        assert found is not None
        return float(found)

    ends, cuts = [], []
    for each in whole:
        audio = speech.heard(each).samples()
        said = audio[: speech_end(audio, RATE)]
        middle = min(gaps(said), key=lambda place: abs(place - len(said) // 2))
        ends.append(asyncio.run(over(said)))
        cuts.append(asyncio.run(over(said[:middle])))
    assert np.median(ends) > 0.6 and np.median(cuts) < 0.4


def test_short_and_hesitant_speech_is_not_taken_for_noise(whisper: Stt) -> None:
    chosen = [
        *speech.recordings("assistant_utterances", 10, seconds=3.0),
        *speech.recordings("mfa_hesitations", 10),
    ]
    texts = [alone(whisper, one) for one in chosen]
    assert len(texts) >= 20
    assert "" not in texts


def test_a_long_turn_loses_no_words_and_keeps_little_audio(whisper: Stt) -> None:
    """The words of a turn are complete after 35 s, when some of them are frozen, and after 65 s."""
    recordings = iter([*speech.recordings("ljspeech"), *speech.recordings("librispeech_test_other", 12)])
    chosen: list[Recording] = []
    stream: Any = whisper.stream()

    async def fed(audio: AudioChunk) -> str:
        for part in audio.slices(8 * RATE):
            stream.feed(part)
            text: str = (await stream.transcribe(is_final=False)).text
            held = sum(map(len, stream._chunks))
            assert held == stream._length <= 24 * RATE
        return text

    for seconds in (35, 65):
        more: list[Recording] = []
        while sum(one.seconds for one in [*chosen, *more]) < seconds:
            more.append(next(recordings))
        chosen += more
        text = run(fed(speech.join([speech.heard(one) for one in more], gap=0.3)))
        said = " ".join(one.text or "" for one in chosen)
        each = " ".join(alone(whisper, one) for one in chosen)
        assert speech.word_error_rate([said], [text]) < speech.word_error_rate([said], [each]) + 0.05
    assert len(stream._frozen) > 2


def test_long_turn_at_once_equals_a_streamed_one(whisper: Stt) -> None:
    chosen = speech.recordings("ljspeech")
    said = " ".join(one.text or "" for one in chosen)
    (text,) = words(whisper, speech.join([speech.heard(one) for one in chosen]))
    assert sum(one.seconds for one in chosen) > 45
    assert speech.word_error_rate([said], [text]) < 0.1


@pytest.mark.parametrize("seconds", [5, 30])
def test_cancelling_keeps_the_audio(whisper: Stt, seconds: int) -> None:
    recordings = [speech.heard(one) for one in speech.recordings("ljspeech", 8)]
    audio = next(speech.join(recordings).slices(seconds * RATE))

    async def cancelled(wait: float) -> str:
        stream = whisper.stream()
        stream.feed(audio)
        task = asyncio.create_task(stream.transcribe(is_final=True))
        await asyncio.sleep(wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await stream.transcribe(is_final=True)).text

    right = words(whisper, audio)
    for wait in (0.0, 0.05):
        assert [run(cancelled(wait))] == right, wait


@pytest.fixture(scope="module")
def batching() -> Iterator[Whisper]:
    """Whisper with batches, as on a machine where a batch costs less than single runs."""
    speech.need("whisper:tiny.en")
    loaded = Whisper(locate("whisper-tiny.en"), batch=4)
    yield loaded
    loaded.close()


def test_streams_of_all_lengths_at_once_equal_single_runs(batching: Whisper, whisper: Stt) -> None:
    """Each job has the window of its own length, so the results are exactly equal."""
    chosen = [*speech.recordings("ljspeech"), *speech.recordings("read_misc", 6)]
    chosen = [one for one in chosen if one.text]
    said = [one.text or "" for one in chosen]
    short = speech.recordings("assistant_utterances", 10, seconds=3.0)[:4]
    steps = batching.engine.stats.steps
    texts = words(batching, *(speech.heard(one) for one in [*chosen, *short]))
    assert texts == [alone(whisper, one) for one in [*chosen, *short]]
    assert batching.engine.stats.steps - steps < len(texts)
    assert speech.word_error_rate(said, texts[: len(said)]) < 0.12


def test_reset_drops_the_turn(stt: Stt) -> None:
    first, second = (speech.heard(one) for one in speech.recordings("ljspeech", 2))

    async def reset() -> list[str]:
        stream = stt.stream()
        texts = [await final(stream, first)]
        stream.reset()
        texts.append((await stream.transcribe(is_final=True)).text)
        return [*texts, await final(stream, second)]

    before, between, after = run(reset())
    assert before and not between
    assert after == words(stt, second)[0]


def test_reset_during_a_transcription_drops_its_result(whisper: Stt) -> None:
    chosen = speech.recordings("ljspeech", 8)
    recordings = [speech.heard(one) for one in chosen]

    async def reset() -> str:
        stream = whisper.stream()
        stream.feed(speech.join(recordings[:4]))
        late = asyncio.create_task(stream.transcribe(is_final=False))
        await asyncio.sleep(0.05)
        stream.reset()
        stream.feed(recordings[4])
        await late
        return (await stream.transcribe(is_final=True)).text

    assert run(reset()) == alone(whisper, chosen[4])


def test_another_rate_is_refused(whisper: Stt) -> None:
    with pytest.raises(ValueError, match="16000 Hz, not 8000"):
        whisper.stream().feed(AudioChunk(bytes(100), 8000))


def test_closed_recogniser_raises() -> None:
    stt: Any = speech.model("whisper:tiny.en")
    stt.close()
    with pytest.raises(ModelError, match="whisper: the engine is closed"):
        words(stt, speech.chunk(speech.noise(1)))


def test_script_is_transcribed_word_by_word_and_turn_by_turn() -> None:
    async def turns() -> list[str]:
        stream = speech.model("scripted:stt|one two three four|five").stream()
        stream.feed(speech.chunk(speech.noise(1)))
        texts = [
            (await stream.transcribe(is_final=False)).text,
            (await stream.transcribe(is_final=True)).text,
        ]
        for _ in range(2):
            stream.reset()
            stream.feed(AudioChunk(b"", RATE))
            texts.append(await final(stream, speech.chunk(speech.noise(1))))
        return texts

    assert run(turns()) == ["one two three", "one two three four", "five", "five"]
