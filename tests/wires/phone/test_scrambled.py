"""Whole telephone calls whose messages are lost, doubled, late or damaged, driven as the server does.

Every byte string ends in commands and messages, or in the protocol's error, which ends the call in words.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.callers.carriers import SIMS, AsteriskSim, ExotelSim, PlivoSim, TelnyxSim, TwilioSim, VonageSim
from support.scrambled.frames import Frame, scrambled
from support.scrambled.phone import HAPPENS, AudioSocketCall, Driven, whole

from rejoinder.agent.wires.audiosocket.protocol import (
    DTMF_PACKET,
    MAX_QUEUED_PACKETS,
    PACKET_RATES,
    AudioSocket,
    Queue,
    packet,
)
from rejoinder.agent.wires.phone.protocol import sniff
from rejoinder.pipeline import (
    Overloaded,
    ProtocolError,
)


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_call_in_any_order_ends_in_words(sim: type[TwilioSim]) -> None:
    @settings(max_examples=120)
    @given(scrambled(whole(sim())), st.lists(st.sampled_from(sorted(HAPPENS)), max_size=40))
    def fuzz(frames: list[Frame], happens: list[str]) -> None:
        call = Driven()
        for number, frame in enumerate(frames):
            call.take(frame)
            call.tell(HAPPENS[happens[number]] if number < len(happens) else [])

    fuzz()


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_call_that_is_not_scrambled_is_heard_to_its_end(sim: type[TwilioSim]) -> None:
    line = sim()
    call = Driven()
    for frame in whole(line):
        call.take(frame)
    # Of six times 20 ms; two of Telnyx's frames come too late, and a resampler holds a little back.
    assert call.over == (line.stop() is not None) and call.heard > 3.5 * 640


def test_second_end_of_a_reply_is_harmless() -> None:
    """atheris found it: the resampler took nothing behind its last."""
    call = Driven()
    for frame in TwilioSim().start():
        call.take(frame)
    for happens in ("reply", "done", "done", "reply", "cut", "done"):
        call.tell(HAPPENS[happens])
    assert call.phone is not None and not call.over


@pytest.mark.parametrize(
    ("sim", "path"),
    [
        (TwilioSim, ("start", "mediaFormat", "encoding")),
        (TelnyxSim, ("start", "media_format", "encoding")),
        (PlivoSim, ("start", "mediaFormat", "encoding")),
        (ExotelSim, ("start", "media_format", "sample_rate")),
        (VonageSim, ("content-type",)),
        (AsteriskSim, ("format",)),
    ],
)
@given(st.text() | st.integers() | st.floats() | st.none() | st.lists(st.text(), max_size=2))
def test_wrong_codec_is_refused_or_decoded_as_announced(
    sim: type[TwilioSim], path: tuple[str, ...], announced: Any
) -> None:
    start = json.loads(sim().start()[-1])
    here = start
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = announced
    try:
        carrier = sniff(json.dumps(start))
    except ProtocolError as error:
        assert str(error)
    else:
        assert carrier is not None and carrier.format_in.rate in (8000, 16000, 24000, 48000)


PACKETS = st.builds(
    packet,
    st.sampled_from([0x00, 0x01, DTMF_PACKET, 0x02, *PACKET_RATES, 0x11, 0xFF]),
    st.binary(max_size=8) | st.just(bytes(320)) | st.just(bytes(640)),
)


@settings(max_examples=300)
@given(st.lists(PACKETS | st.binary(max_size=12), max_size=30), st.lists(st.integers(1, 700), max_size=30))
def test_audiosocket_in_any_order_ends_in_words(said: list[bytes], cuts: list[int]) -> None:
    stream, call = b"".join(said), AudioSocketCall()
    for size in [*cuts, len(stream) + 1]:
        call.feed(stream[:size])
        stream = stream[size:]


@given(
    st.lists(st.sampled_from(["clear", "hold", "release", "mark a", "next", b"\x10\x00\x02ab"]), max_size=400)
)
def test_audiosocket_queue_is_bounded_and_loses_nothing_else(words: list[Frame]) -> None:
    queue, waiting, held = Queue(), [], False
    for word in words:
        if word == "next":
            played, marks = queue.next()
            came = [*marks, *([played] if played else [])]
            assert (
                came == []
                if held
                else came == [str(one)[5:] if isinstance(one, str) else one for one in waiting[: len(came)]]
            )
            del waiting[: len(came)]
            continue
        try:
            queue.take(word)
        except Overloaded:
            assert len(waiting) == MAX_QUEUED_PACKETS
            return
        held = word == "hold" or (held and word not in ("release", "clear"))
        if word == "clear":
            waiting.clear()
        elif word not in ("hold", "release"):
            waiting.append(word)
        assert len(waiting) <= MAX_QUEUED_PACKETS


def test_audiosocket_is_a_carrier() -> None:
    assert [AudioSocket(kind).format_in.rate for kind in PACKET_RATES] == list(PACKET_RATES.values())
