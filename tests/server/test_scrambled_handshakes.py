"""Requests and handshakes of which anything is damaged: each is answered, upgraded, or dropped in time.

The server's protocol objects run on a real transport, in virtual time.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.scrambled.handshakes import HEAD, ODD, PLAIN, Line, handshake

from rejoinder.agent.server import request_head

APPLICATIONS = ("accepts", "denies", "fails", "returns", "never answers")


def status(line: Line) -> int:
    return int(line.said.split()[1]) if line.said else 0


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("size", [2**16, 1000], ids=["at once", "in pieces"])
def test_odd_handshake_is_answered(name: str, size: int) -> None:
    odd, wanted = ODD[name]
    said = HEAD + odd + b"\r\n"
    line = handshake([said[place : place + size] for place in range(0, len(said), size)])
    assert status(line) == wanted
    if wanted != 101:
        body = line.said.partition(b"\r\n\r\n")[2].decode()
        assert body.count("\n") == 1 and body.endswith("\n") and 20 < len(body) < 200, "one sentence"


@pytest.mark.parametrize("name", ODD)
def test_plain_request_is_refused_for_its_size_as_the_handshake_is(name: str) -> None:
    """So a page can ask why it got no socket."""
    odd, wanted = ODD[name]
    assert (status(handshake([PLAIN + odd + b"\r\n"])) == 431) == (wanted == 431)


@pytest.mark.parametrize("name", ["too many headers", "a control character", "a cookie that is too large"])
def test_requests_that_only_the_second_parser_refuses_are_answered_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_head, "check", lambda request: None)
    line = handshake([HEAD + ODD[name][0] + b"\r\n"])
    assert status(line) == 400 and b"malformed" in line.said and line.closed


@pytest.mark.parametrize("manner", APPLICATIONS)
def test_handshake_ends_whatever_the_application_does(manner: str) -> None:
    statuses = {"accepts": 101, "denies": 403, "fails": 500, "returns": 500, "never answers": 0}
    line = handshake([HEAD + b"\r\n"], manner)
    assert status(line) == statuses[manner] and line.closed == (manner != "accepts")


@pytest.mark.parametrize("manner", APPLICATIONS)
def test_frames_before_the_end_of_the_handshake_do_no_harm(manner: str) -> None:
    handshake([HEAD + b"\r\n", b"\xff" * 20], manner)


def test_request_that_is_malformed_behind_another_is_refused_and_its_answer_is_whole() -> None:
    line = handshake([PLAIN + b"Content-Length: 2\r\n\r\nab", b"GET / HTTP/1.1\r\nnonsense\r\n\r\n"])
    assert re.findall(rb"HTTP/1\.1 (\d+)", line.said) == [b"426", b"400"] and line.closed


def test_body_that_is_malformed_behind_its_answer_ends_the_connection() -> None:
    line = handshake([PLAIN + b"Transfer-Encoding: chunked\r\n\r\n", b"no size\r\n"])
    assert re.findall(rb"HTTP/1\.1 (\d+)", line.said) == [b"426"] and line.closed


@st.composite
def spoilt(draw: st.DrawFn) -> list[bytes]:
    """Return requests with odd headers and damaged bytes, in pieces."""
    said = b""
    for _ in range(draw(st.integers(1, 3))):
        lines = [
            draw(st.sampled_from(sorted(odd for odd, _ in ODD.values())))
            for _ in range(draw(st.integers(0, 2)))
        ]
        said += draw(st.sampled_from([HEAD, PLAIN])) + b"".join(lines) + b"\r\n"
        said += draw(st.sampled_from([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"\x81\x80\0\0\0\0"]))
    damaged = bytearray(said)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(damaged)))
        damaged[place : place + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
    cuts = sorted(draw(st.lists(st.integers(0, len(damaged)), max_size=6)))
    places = [0, *cuts, len(damaged)]
    return [bytes(damaged[a:b]) for a, b in pairwise(places) if a < b]


@settings(max_examples=150)
@given(spoilt(), st.sampled_from(APPLICATIONS))
@example([b"\r\n"], "accepts")
@example([HEAD], "accepts")
def test_any_bytes_are_answered_upgraded_or_dropped(pieces: list[bytes], manner: str) -> None:
    handshake(pieces, manner)
