"""The Wyoming protocol on plain bytes and events: parsing, limits and requests."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.wires.wyoming.audio import MAX_SECONDS, Ear, Format
from rejoinder.agent.wires.wyoming.protocol import MAX_DATA, MAX_HEADER, MAX_PAYLOAD, Event, Events, encode
from rejoinder.agent.wires.wyoming.requests import MAX_SPOKEN, Describe, Handle, Hear, Ping, Requests, Speak
from rejoinder.pipeline import RATE, ProtocolError

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
TYPES = (
    "describe ping transcribe audio-start audio-chunk audio-stop transcript synthesize synthesize-start "
    "synthesize-chunk synthesize-stop nonsense"
).split()
FIELDS = "rate width channels text language context conversation_id text_format voice".split()
FORMAT = {"rate": 16_000, "width": 2, "channels": 1}


def events(stream: bytes, cuts: list[int]) -> tuple[list[Event], str]:
    """Return the events of a stream that comes in pieces, and the error that ends it."""
    protocol, came = Events(), list[Event]()
    try:
        for first, end in pairwise(sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})):
            for event in protocol.feed(stream[first:end]):
                came.append(event)
    except ProtocolError as error:
        assert error.code
        return came, str(error)
    return came, ""


@given(
    st.lists(st.builds(Event, WORDS, st.dictionaries(WORDS, WORDS | st.integers()), st.binary(max_size=90))),
    st.lists(st.integers(0, 5000)),
)
def test_events_are_read_at_any_split_of_the_stream(told: list[Event], cuts: list[int]) -> None:
    assert events(b"".join(map(encode, told)), cuts) == (told, "")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_every_byte_string_ends_in_events_or_in_the_protocols_error(stream: bytes, cuts: list[int]) -> None:
    assert events(stream, cuts) == events(stream, [])


@given(
    st.dictionaries(st.sampled_from(["type", "data", "data_length", "payload_length", "version"]), JSON),
    st.binary(max_size=60),
    st.lists(st.integers(0, 200)),
)
def test_every_header_ends_in_events_or_in_the_protocols_error(
    header: dict[str, object], rest: bytes, cuts: list[int]
) -> None:
    stream = json.dumps(header).encode() + b"\n" + rest
    assert repr(events(stream, cuts)) == repr(events(stream, []))  # NaN is not equal to itself


@given(
    st.lists(
        st.builds(
            Event,
            st.sampled_from(TYPES),
            st.just(FORMAT) | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5),
            st.binary(max_size=40),
        ),
        max_size=20,
    )
)
def test_events_in_any_order_end_in_requests_or_in_the_protocols_error(told: list[Event]) -> None:
    requests = Requests()
    try:
        for event in told:
            request = requests.take(event)
            assert request is None or event.type in TYPES[:-1]
    except ProtocolError as error:
        assert error.code and len(str(error)) < 500


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"x" * (MAX_HEADER + 1), "a line of at most"),
        (b'{"type": "describe", "data_length": %d}\n' % (MAX_DATA + 1), "data_length"),
        (b'{"type": "audio-chunk", "payload_length": %d}\n' % (MAX_PAYLOAD + 1), "payload_length"),
        (b'{"type": "audio-chunk", "payload_length": -1}\n', "payload_length"),
        (b'{"type": "audio-chunk", "payload_length": true}\n', "payload_length"),
        (b'{"type": "audio-chunk", "payload_length": 1e3}\n', "payload_length"),
        (b"[" * 60_000 + b"\n", "more than 1024 values"),
        (b'{"type": 5}\n', "a type"),
        (b'{"type": "ping", "data": []}\n{"type": "ping", "data": 5}\n', "data has to be an object"),
        (b'{"type": "ping", "data_length": 2}\n[]', "no JSON object"),
        (b"GET / HTTP/1.1\r\n", "no JSON"),
    ],
)
def test_too_long_and_invalid_events_are_refused_before_they_are_buffered(stream: bytes, why: str) -> None:
    assert why in events(stream, [])[1]


def test_separate_data_overrides_data_in_the_header() -> None:
    stream = b'{"type": "x", "data": {"a": 1, "b": 1}, "data_length": 8, "version": "1.0"}\n{"b": 2}'
    assert events(stream, [])[0] == [Event("x", {"a": 1, "b": 2})]


def tone(rate: int, seconds: float = 0.5) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 1), (2, 2), (3, 1), (4, 2)])
def test_every_audio_format_decodes_to_the_same_tone(rate: int, width: int, channels: int) -> None:
    wave = np.round(tone(rate) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    octets = (wave + 128 if width == 1 else wave)[:, None].repeat(channels, 1).astype("<i8")
    pcm = octets.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    format_ = {"rate": rate, "width": width, "channels": channels}
    ear, step = Ear(Format.of(format_)), rate // 100 * width * channels
    for first in range(0, len(pcm), step):
        ear.feed(Event("audio-chunk", format_, pcm[first : first + step]))
    heard = ear.all()
    assert heard.rate == RATE and abs(heard.seconds - 0.5) < 0.001
    inner, turns = heard.samples()[800:7200], 2 * np.pi * 440 * np.arange(6400) / RATE
    waves = np.stack((np.sin(turns), np.cos(turns)))
    parts = waves @ inner / 3200
    assert np.hypot(*parts) == pytest.approx(0.5, abs=0.005), "as loud, and delayed at most"
    assert np.abs(inner - parts @ waves).max() < (0.02 if width == 1 else 0.006), "and nothing besides"


def test_audio_limit_applies_before_resampling() -> None:
    low = {"rate": 4_000, "width": 1, "channels": 1}
    ear = Ear(Format.of(low))
    ear.feed(Event("audio-chunk", low, bytes(MAX_SECONDS * 4_000)))
    with pytest.raises(ProtocolError, match="60 s of audio"):
        ear.feed(Event("audio-chunk", low, b"\x80"))
    with pytest.raises(ProtocolError, match="format"):
        ear.feed(Event("audio-chunk", FORMAT, bytes(2)))
    with pytest.raises(ProtocolError, match="whole samples"):
        Ear(Format.of(FORMAT)).feed(Event("audio-chunk", FORMAT, bytes(3)))


def test_requests_follow_from_the_order_of_events() -> None:
    requests = Requests()
    assert requests.take(Event("describe")) == Describe()
    assert requests.take(Event("ping", {"text": "a"})) == Ping("a")
    assert requests.take(Event("run-satellite")) is None, "unknown ones are dropped"
    assert requests.take(Event("transcribe", {"language": "en"})) is None
    assert requests.take(Event("audio-start", FORMAT)) is None
    assert requests.take(Event("audio-chunk", FORMAT, b"\1\0")) is None
    heard = requests.take(Event("audio-stop"))
    assert isinstance(heard, Hear) and (heard.audio.pcm, heard.language) == (b"\1\0", "en")
    silent = requests.take(Event("audio-stop"))
    assert isinstance(silent, Hear) and (silent.audio.pcm, silent.language) == (b"", "")
    asked = Event("transcript", {"text": "hi", "context": {"conversation_id": "7"}})
    assert requests.take(asked) == Handle("hi", "7")
    assert requests.take(Event("transcript", {"text": "hi"})) == Handle("hi", "")


def test_streamed_text_is_spoken_once() -> None:
    requests = Requests()
    speak = requests.take(Event("synthesize-start"))
    assert isinstance(speak, Speak) and speak.streamed
    for piece in ("Hello ", "", "there."):
        assert requests.take(Event("synthesize-chunk", {"text": piece})) is None
    assert requests.take(Event("synthesize", {"text": "Hello there."})) is None, "the same once more"
    assert not speak.texts.closed
    assert requests.take(Event("synthesize-stop")) is None
    assert speak.texts.closed and speak.texts.receive_nowait(9) == ["Hello ", "there."]
    again = requests.take(Event("synthesize", {"text": "Bye."}))
    assert isinstance(again, Speak) and not again.streamed and again.texts.receive_nowait(9) == ["Bye."]
    requests.take(Event("synthesize-start"))
    for _ in range(MAX_SPOKEN):
        requests.take(Event("synthesize-chunk", {"text": "x"}))
    with pytest.raises(ProtocolError, match="characters"):
        requests.take(Event("synthesize-chunk", {"text": "x"}))
