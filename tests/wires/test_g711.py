"""Mu-law and A-law against the tables of ITU-T G.711, and against libsndfile."""

import io

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from rejoinder.agent.wires.g711 import Law, decode, encode

LAWS: tuple[Law, Law] = ("mulaw", "alaw")
SUBTYPES: dict[Law, str] = {"mulaw": "ULAW", "alaw": "ALAW"}
SHIFT: dict[Law, int] = {"mulaw": 2, "alaw": 3}
"""Bits between the values of G.711's tables, of 14 and 13 bits, and 16 bits."""

# Tables 1a and 2a, column 6 (character signals of positive values) and 7 (their decoded values), at the first
# and the last interval of each segment. Signals are before the inversion of even bits of A-law.
A_LAW = {
    0b1000_0000: 1,
    0b1000_1111: 31,
    0b1001_0000: 33,
    0b1001_1111: 63,
    0b1010_0000: 66,
    0b1010_1111: 126,
    0b1011_0000: 132,
    0b1011_1111: 252,
    0b1100_0000: 264,
    0b1101_0000: 528,
    0b1110_0000: 1056,
    0b1111_0000: 2112,
    0b1111_1111: 4032,
}
MU_LAW = {
    0b1111_1111: 0,
    0b1111_1110: 2,
    0b1111_0000: 30,
    0b1110_1111: 33,
    0b1110_0000: 93,
    0b1101_1111: 99,
    0b1100_1111: 231,
    0b1011_1111: 495,
    0b1010_1111: 1023,
    0b1001_1111: 2079,
    0b1000_1111: 4191,
    0b1000_0000: 8031,
}
SEGMENTS: dict[Law, tuple[int, ...]] = {
    "mulaw": (31, 95, 223, 479, 991, 2015, 4063),
    "alaw": (32, 64, 128, 256, 512, 1024, 2048),
}
"""Column 4 of both tables: the decision values at which segments begin."""


def samples(pcm: bytes) -> NDArray[np.int16]:
    return np.frombuffer(pcm, "<i2")


def written(pcm: bytes, law: Law) -> tuple[bytes, NDArray[np.int16]]:
    """Return what libsndfile makes of samples, and what it reads of that."""
    file = io.BytesIO()
    soundfile.write(file, samples(pcm), 8000, format="RAW", subtype=SUBTYPES[law])
    codes = file.getvalue()
    read, _ = soundfile.read(
        io.BytesIO(codes), dtype="int16", format="RAW", subtype=SUBTYPES[law], samplerate=8000, channels=1
    )
    return codes, read


def test_decoded_values_match_the_recommendation() -> None:
    for code, value in MU_LAW.items():
        assert samples(decode(bytes([code, code ^ 0x80]), "mulaw")).tolist() == [value * 4, -value * 4]
    for code, value in A_LAW.items():
        wire = code ^ 0x55
        assert samples(decode(bytes([wire, wire ^ 0x80]), "alaw")).tolist() == [value * 8, -value * 8]


@pytest.mark.parametrize("law", LAWS)
def test_segments_begin_where_the_recommendation_says(law: Law) -> None:
    for value in SEGMENTS[law]:
        begin = value << SHIFT[law]
        below, above = encode(np.array([begin - 1, begin], "<i2").tobytes(), law)
        ascending = (~below & 0x7F, ~above & 0x7F) if law == "mulaw" else (below ^ 0xD5, above ^ 0xD5)
        assert ascending[1] == ascending[0] + 1 and ascending[1] % 16 == 0, value


@pytest.mark.parametrize("law", LAWS)
def test_every_code_survives_decoding_and_encoding(law: Law) -> None:
    codes = bytes(range(256))
    again = encode(decode(codes, law), law)
    # Mu-law has two zeros; the negative one comes back as the positive.
    assert again == (codes.replace(b"\x7f", b"\xff") if law == "mulaw" else codes)


@pytest.mark.parametrize("law", LAWS)
def test_every_sample_agrees_with_libsndfile(law: Law) -> None:
    every = np.arange(-(2**15), 2**15).astype("<i2")
    codes, read = written(every.tobytes(), law)
    assert samples(decode(codes, law)).tolist() == read.tolist()
    assert encode(every.tobytes(), law) == codes


@pytest.mark.parametrize("law", LAWS)
def test_loud_extremes_are_clipped_not_wrapped(law: Law) -> None:
    loud = samples(decode(encode(np.array([-32768, 32767], "<i2").tobytes(), law), law))
    assert loud[0] == -loud[1] and loud[1] > 32_000
    assert encode(b"", law) == decode(b"", law) == b""
