"""The agent's voice in the microphone: it is taken out, and what others say is left in."""

from __future__ import annotations

import numpy as np
import pytest
from support import speech
from support.echoes import babble, room

from rejoinder.pipeline.audio import resample
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.audio.echo_path import BLOCKS, ECHO_BLOCK
from rejoinder.pipeline.audio.resample import ToSession

SLICE = RATE // 25
UPLINK = 0.03
"""Seconds that microphone audio is on its way here."""


def through(audio: Samples, response: Samples, level: float, delay: float) -> Samples:
    """Return what a microphone hears of audio, ``delay`` seconds later, at ``level`` decibels."""
    size = 1 << (len(audio) + len(response)).bit_length()
    heard = np.fft.irfft(np.fft.rfft(audio, size) * np.fft.rfft(response, size))[: len(audio)]
    late = np.concatenate((np.zeros(int(delay * RATE)), heard))[: len(audio)]
    return (late * 10 ** (level / 20)).astype(np.float32)


def listen(echo: Echo, played: Samples, heard: Samples, size: int = 320, begin: float = 0.0) -> Samples:
    """Play one thing and hear another at the same time, in chunks; return what comes out."""
    clean, sent = [echo.hear(AudioChunk(b"", RATE), UPLINK)], 0
    for first in range(0, len(heard), size):
        chunk = AudioChunk(to_pcm(heard[first : first + size]), RATE, first)
        now = chunk.end / RATE + UPLINK
        while sent < len(played) and (begin * RATE + sent) / RATE < now + 0.2:
            piece = AudioChunk(to_pcm(played[sent : sent + SLICE]), RATE)
            echo.play(piece, begin + UPLINK + sent / RATE)
            sent += SLICE
        clean.append(echo.hear(chunk, now))
    place = 0
    for chunk in clean:
        assert not len(chunk) or chunk.start == place  # no sample is lost or told twice
        place += len(chunk)
    return np.concatenate([chunk.samples() for chunk in clean])


def power(audio: Samples) -> float:
    return 10 * float(np.log10(np.mean(np.square(audio)) + 1e-12))


def hiss(count: int) -> Samples:
    return np.random.default_rng(9).normal(0.0, 3e-4, count).astype(np.float32)


@pytest.mark.parametrize("level", [0.0, -6.0, -12.0, -20.0])
@pytest.mark.parametrize("delay", [0.02, 0.3, 0.6])
def test_the_echo_is_taken_out(level: float, delay: float) -> None:
    played = babble(6.1)
    heard = through(played, room(), level, delay) + hiss(len(played))
    clean = listen(Echo(), played, heard)
    for begin in (1.0, 2.0, 5.0):
        span = slice(int(begin * RATE), int((begin + 1.0) * RATE))
        assert power(clean[span]) < max(power(heard[span]) - 12, -62), begin


@pytest.mark.parametrize("level", [0.0, -12.0])
def test_speech_over_the_echo_is_kept(level: float) -> None:
    played, other = babble(8.0), np.zeros(8 * RATE, np.float32)
    other[5 * RATE : 6 * RATE] = 0.7 * babble(1.0, seed=5)
    heard = through(played, room(), level, 0.3) + other + hiss(len(played))
    clean = listen(Echo(), played, heard)
    span = slice(5 * RATE, 6 * RATE - ECHO_BLOCK)
    assert abs(power(clean[span]) - power(other[span])) < 3.0
    assert np.corrcoef(clean[span], other[span])[0, 1] > 0.9


def test_another_reply_with_another_delay() -> None:
    """Its first words are doubted again; what is known of the room is kept."""
    echo, first, second = Echo(), babble(5.0), babble(5.0, seed=2)
    played = np.concatenate((first, np.zeros(RATE, np.float32), second))
    heard = np.concatenate(
        (
            through(np.concatenate((first, np.zeros(RATE, np.float32))), room(), -6.0, 0.25),
            through(second, room(), -6.0, 0.28),
        )
    )
    clean, place = [], 0
    for start in range(0, len(heard), 320):
        chunk = AudioChunk(to_pcm(heard[start : start + 320]), RATE, start)
        while place < len(played) and place < chunk.end + RATE // 5:
            if not 5 * RATE <= place < 6 * RATE:
                echo.play(AudioChunk(to_pcm(played[place : place + SLICE]), RATE), place / RATE)
            place += SLICE
        clean.append(echo.hear(chunk, chunk.end / RATE).samples())
    out = np.concatenate(clean)
    for begin in (6.3, 6.8, 8.0):
        span = slice(int(begin * RATE), int((begin + 0.5) * RATE))
        assert power(out[span]) < power(heard[span]) - 9, begin


def test_a_headset_is_let_through_as_it_is() -> None:
    echo, played, other = Echo(), babble(20.0), hiss(20 * RATE)
    assert echo.possible  # until something was played, and not heard
    other[16 * RATE : 17 * RATE] += babble(1.0, seed=5)
    clean = listen(echo, played, other)
    assert not echo.possible
    span = slice(15 * RATE, 18 * RATE)
    assert np.allclose(clean[span], other[span], atol=1e-4)


def test_without_the_agent_nothing_is_touched() -> None:
    echo = Echo()
    chunk = AudioChunk(to_pcm(babble(0.02)), RATE, 77)
    assert echo.hear(chunk, 1.0) == chunk
    assert echo.hear(AudioChunk(b"", RATE, chunk.end), 1.0) == AudioChunk(b"", RATE, chunk.end)


@pytest.mark.parametrize("size", [1, 100, 512, 1600])
def test_the_same_audio_however_it_is_cut(size: int) -> None:
    seconds = 0.3 if size == 1 else 2.0
    played = babble(seconds)
    heard = through(played, room(), -6.0, 0.05) + hiss(len(played))
    cut, whole = (listen(Echo(), played, heard, each) for each in (size, 320))
    length = min(len(cut), len(whole)) // ECHO_BLOCK * ECHO_BLOCK
    assert length > 0
    assert np.allclose(cut[:length], whole[:length], atol=1e-4)


def test_an_empty_chunk_returns_the_held_audio() -> None:
    echo = Echo()
    echo.hear(AudioChunk(to_pcm(hiss(320)), RATE, 0), 0.02)
    echo.play(AudioChunk(to_pcm(babble(1.0)), RATE), 0.02)
    told = echo.hear(AudioChunk(to_pcm(hiss(320)), RATE, 320), 0.04)
    told_more = echo.hear(AudioChunk(b"", RATE, 640), 0.04)
    assert (told.start, told_more.end) == (320, 640)
    assert told.end == told_more.start


def test_what_a_client_holds_is_heard_later() -> None:
    echo = Echo()
    echo.hear(AudioChunk(to_pcm(hiss(320)), RATE, 0), 0.02)
    echo.play(AudioChunk(to_pcm(babble(1.0)), RATE), 0.0, "It is sunny today.")
    echo.hold(0.5)
    assert not echo._plan[RATE // 2 :].any()
    echo.release(2.0)
    moved = echo._plan[2 * RATE : 2 * RATE + RATE // 4]
    assert np.allclose(moved, babble(1.0)[RATE // 2 : RATE // 2 + RATE // 4], atol=0.02)
    echo.cut(2.1)
    assert not echo._plan[int(2.1 * RATE) :].any()


def test_the_words_that_may_be_heard() -> None:
    echo = Echo()
    echo.hear(AudioChunk(to_pcm(hiss(320)), RATE, 0), 0.02)
    echo.play(AudioChunk(to_pcm(babble(2.0)), RATE), 1.0, "It is sunny today.")
    echo.play(AudioChunk(to_pcm(babble(2.0)), RATE), 3.0, "Take a hat.")
    assert echo.saying(0) == ""
    assert echo.saying(2 * RATE) == "It is sunny today."
    assert echo.saying(int(3.5 * RATE)) == "It is sunny today. Take a hat."
    assert echo.saying(7 * RATE) == ""
    echo.path.level = 0.0
    assert echo.saying(2 * RATE) == ""  # nothing of it is heard


def test_a_wrong_estimate_makes_no_sound_in_a_silent_microphone() -> None:
    """A tone of the caller looks like the echo of the agent's tone, and is over while the agent speaks on."""
    times = np.arange(4 * RATE, dtype=np.float32) / RATE
    played, heard = 0.3 * np.sin(2 * np.pi * 440 * times), 0.3 * np.sin(2 * np.pi * 382 * times)
    heard[RATE:] = 0.0
    clean = listen(Echo(), played, heard)
    assert power(clean[: RATE // 2]) > -60.0, "the caller is heard"
    assert not np.any(clean[RATE + ECHO_BLOCK :])


def test_its_memory_is_bounded() -> None:
    echo = Echo()
    listen(echo, babble(3.0), hiss(3 * RATE))
    assert echo.path._way.shape == (BLOCKS, ECHO_BLOCK + 1)
    assert len(echo._plan) == 8 * RATE
    assert len(echo._rest) < ECHO_BLOCK


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 48_000])
@pytest.mark.parametrize("size", [37, 882])
def test_resampling(rate: int, size: int) -> None:
    times = np.arange(rate) / rate
    tone = (0.5 * np.sin(2 * np.pi * 1000 * times)).astype(np.float32)
    resampler = ToSession(rate)
    pieces = [resampler.feed(piece.pcm) for piece in AudioChunk(to_pcm(tone), rate).slices(size)]
    resampled = np.concatenate(pieces)
    assert abs(len(resampled) - RATE) < 0.003 * RATE
    wanted = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(len(resampled)) / RATE)
    middle = slice(RATE // 10, RATE * 9 // 10)
    assert power((resampled - wanted)[middle].astype(np.float32)) < power(wanted[middle]) - 40


@pytest.mark.parametrize("level", [0.0, -12.0])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_recorded_speech_through_recorded_rooms(place: int, level: float) -> None:
    """Silero finds no speech in a second reply's echo, and all speech over it."""
    vad = speech.model("silero")
    responses = speech.recordings("rir")
    voices, others = speech.recordings("ljspeech", 3), speech.recordings("assistant_utterances", 3)
    response = responses[place].load(RATE)
    response = response / np.sqrt(np.sum(response**2))
    played = np.concatenate([voice.load(RATE) for voice in voices])[: 14 * RATE]
    other = np.zeros(len(played), np.float32)
    for number, recording in enumerate(others):
        said = recording.load(RATE)[:RATE]
        other[(6 + 3 * number) * RATE :][: len(said)] = said
    heard = through(played, response, level, 0.3) + hiss(len(played))

    def voiced(audio: Samples, begin: float, end: float) -> int:
        probabilities = vad.stream().feed(AudioChunk(to_pcm(audio), RATE))
        return sum(p > 0.5 for at, p in probabilities if begin * RATE < at <= end * RATE)

    alone, both = listen(Echo(), played, heard), listen(Echo(), played, heard + other)
    assert voiced(heard, 2.0, 14.0) > 100
    assert voiced(alone, 2.0, 14.0) < 5
    # Two windows make the agent pause, and from then on there is no echo over what is said.
    passed = [voiced(both, begin, begin + 1.2) for begin in (6, 9, 12)]
    assert min(passed) >= 2
    assert sum(passed) > 0.5 * voiced(other, 6, 14)


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("size", [1, 33, 480])
def test_resampling_phase_by_phase_is_the_same_however_the_audio_is_cut(
    rate: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = AudioChunk(to_pcm(speech.noise(0.1, 0.3)), rate)
    cut = ToSession(rate)
    pieces = np.concatenate([cut.feed(piece.pcm) for piece in noise.slices(size)])
    monkeypatch.setattr(resample, "FEW", 0)
    assert np.allclose(pieces, ToSession(rate).feed(noise.pcm), atol=1e-6, rtol=0)
