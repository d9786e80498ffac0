"""All turn models, on whole utterances and on utterances cut in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import speech

from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.interfaces import TurnModel

pytestmark = pytest.mark.weights
PAUSE = speech.silence(0.2)


@pytest.fixture(scope="module")
def smart_turn() -> Iterator[Any]:
    model = speech.model("smart-turn")
    yield model
    model.close()


@pytest.fixture(params=["smart-turn", "scripted:turn"])
def turn(request: pytest.FixtureRequest) -> TurnModel:
    spec = request.param
    model: TurnModel = request.getfixturevalue("smart_turn") if spec == "smart-turn" else speech.model(spec)
    return model


def judge(turn: TurnModel, *audios: Samples) -> list[float]:
    async def together() -> list[float]:
        return await asyncio.gather(*(turn.probability(audio, "some words") for audio in audios))

    with asyncio.Runner(debug=True) as runner:
        return runner.run(together())


def utterances(count: int) -> list[Samples]:
    chosen = speech.recordings("speechocean762_adult", count, seconds=7.0)
    return [speech.heard(recording).samples() for recording in chosen]


Judged = list[tuple[float, Any]]
"""The model's probability for each audio, and the network's output that it comes from."""


@pytest.fixture(scope="module")
def judged(smart_turn: Any) -> tuple[Judged, Judged]:
    """The judgements at the ends of 30 utterances and in pauses in their middle, from one run of each."""
    whole = utterances(30)
    outputs: list[Any] = []
    run = smart_turn.sound

    async def kept(audio: Samples) -> Any:
        outputs.append(await run(audio))
        return outputs[-1]

    async def one_by_one(audios: list[Samples]) -> Judged:
        return [(await smart_turn.probability(audio, "some words"), outputs[-1]) for audio in audios]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smart_turn, "sound", kept)
        done = asyncio.run(one_by_one([np.concatenate((audio, PAUSE)) for audio in whole]))
        held = asyncio.run(one_by_one([np.concatenate((audio[: len(audio) // 2], PAUSE)) for audio in whole]))
    assert len(outputs) == 60
    return done, held


@pytest.mark.parametrize(
    "audio",
    [
        speech.silence(0),
        speech.silence(1 / RATE),
        speech.silence(3),
        speech.noise(0.01),
        speech.noise(20, 0.3),
    ],
    ids=["nothing", "one sample", "silence", "10 ms", "20 s"],
)
def test_any_audio_has_a_probability(turn: TurnModel, audio: Samples) -> None:
    (probability,) = judge(turn, audio)
    assert 0.0 <= probability <= 1.0


def test_whole_utterances_score_higher_than_cut_ones(judged: tuple[Judged, Judged]) -> None:
    done, held = ([probability for probability, _ in each] for each in judged)
    assert len(done) == 30
    assert all(0.0 <= probability <= 1.0 for probability in [*done, *held])
    assert np.mean(done) > np.mean(held) + 0.2


def test_fitted_last_layer_beats_the_published_one(judged: tuple[Judged, Judged]) -> None:
    def separated(of_done: Any, of_held: Any) -> float:
        return float(np.mean(np.asarray(of_done)[:, None] > np.asarray(of_held)))

    ours = separated(*([probability for probability, _ in each] for each in judged))
    assert ours > separated(*([sound.answer for _, sound in each] for each in judged))
    assert judged[0][0][1].pooled.shape == (384,)


def test_only_the_last_eight_seconds_count(smart_turn: TurnModel) -> None:
    long = np.concatenate([speech.noise(12, 0.3), *utterances(3)])
    assert judge(smart_turn, long) == judge(smart_turn, long[-8 * RATE :])


def test_batch_scores_equal_single_runs(smart_turn: TurnModel) -> None:
    audios = utterances(4)
    alone = [judge(smart_turn, audio)[0] for audio in audios]
    assert judge(smart_turn, *audios) == pytest.approx(alone, abs=1e-3)
    assert len(set(alone)) == len(alone)


@pytest.mark.parametrize("seconds", [0.5, 4.0, 8.0, 11.0])
def test_features_are_those_of_whisper(smart_turn: Any, seconds: float) -> None:
    audio = np.concatenate(utterances(4))[: int(seconds * RATE)]
    features = smart_turn._features(audio)
    assert features.shape == (80, 800)
    assert features.dtype == np.float32
    window = np.zeros(8 * RATE)
    window[-min(len(audio), 8 * RATE) :] = audio[-8 * RATE :]
    # The 1e-7 is transformers' Wav2Vec2-style normalisation, with which the model was trained.
    normal = (window - window.mean()) / np.sqrt(window.var() + 1e-7)
    assert features == pytest.approx(log_mel(normal), abs=2e-3)


def test_padding_is_on_the_left(smart_turn: Any) -> None:
    features = smart_turn._features(speech.noise(1.0, 0.3))
    assert features[:, :690].max() < features[:, 710:].min()


def log_mel(samples: Any) -> Any:
    """Compute Whisper's features from their definition (Radford et al. 2022, 2.2; Slaney's mel scale)."""
    padded = np.pad(samples, 200, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160][:800]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    log = np.log10(np.maximum(mel_filters() @ power.T, 1e-10))
    return (np.maximum(log, log.max() - 8.0) + 4.0) / 4.0


def mel_filters() -> Any:
    """Return 80 triangles over 201 frequencies up to 8 kHz: linear to 1 kHz (15 mel), logarithmic above."""
    top = 15 + 27 * np.log(8.0) / np.log(6.4)
    mels = np.linspace(0.0, top, 82)
    corners = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))[:, None]
    hertz = np.linspace(0, 8000, 201)
    rising = (hertz - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - hertz) / (corners[2:] - corners[1:-1])
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (corners[2:] - corners[:-2])
