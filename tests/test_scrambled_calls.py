"""Whole telephone calls whose messages are lost, doubled, late or damaged, driven as the server does.

Every byte string ends in commands and messages, or in the protocol's error, which ends the call in words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from carrier_sims import SIMS, AsteriskSim, ExotelSim, PlivoSim, TelnyxSim, TwilioSim, VonageSim
from hypothesis import given, settings
from hypothesis import strategies as st
from scrambling import Frame, scrambled

from rejoinder.agent.audiosocket import (
    DTMF,
    MOST_QUEUED,
    SPOKEN,
    AudioSocket,
    Packets,
    Queue,
    packet,
    started,
)
from rejoinder.agent.carrier import Carrier
from rejoinder.agent.commands import AddText, HangUp, Hear, Interrupt, Respond, Truncate
from rejoinder.agent.phone import Phone, sniff
from rejoinder.pipeline import (
    AudioChunk,
    Event,
    Options,
    OverlapEnded,
    OverlapStarted,
    Overloaded,
    ProtocolError,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
)

HAPPENS: dict[str, list[Event]] = {
    "reply": [ReplyStarted(1), *(ReplyAudio(1, AudioChunk(bytes(1764), 22_050, 882 * n)) for n in range(9))],
    "done": [ReplyDone(1, "completed", "all")],
    "cut": [ReplyDone(1, "cancelled", "")],
    "speech": [SpeechStarted(16_000)],
    "doubt": [OverlapStarted(16_000)],
    "no doubt": [OverlapEnded("mm-hm")],
    "nothing": [],
}


class Driven:
    """One call, driven as ``pick_up`` and ``Call`` do: until its start, then to its end or an error."""

    def __init__(self) -> None:
        self.carrier: Carrier | None = None
        self.phone: Phone | None = None
        self.over = False
        self.heard = 0
        self.marks: list[str] = []

    def take(self, frame: Frame) -> None:
        if self.over:
            return
        try:
            if self.phone is None:
                if carrier := sniff(frame):
                    self.phone = Phone(carrier, Options(instructions="Be kind."))
                    self._follow(self.phone.open())
            else:
                self._follow(self.phone.receive(frame))
        except ProtocolError as error:
            assert str(error)
            self.over = True

    def tell(self, events: Sequence[Event]) -> None:
        if self.phone is not None and not self.over:
            for event in events:
                self._follow(self.phone.tell(event))
            if self.phone.linger is not None:
                self._follow(self.phone.rest())
            assert self.phone.linger is None, "what waited has gone out"

    def _follow(self, answers: Iterable[Any]) -> None:
        for answer in answers:
            match answer:
                case Hear(pcm):
                    assert len(pcm) % 2 == 0
                    self.heard += len(pcm)
                case HangUp(reason):
                    assert reason
                    self.over = True
                    return
                case str():
                    answer.encode()
                    json.loads(answer)
                case bytes() | Interrupt() | AddText() | Respond():
                    pass
                case Truncate(_, seconds):
                    assert 0.0 <= seconds <= 0.36 + 0.001, "no more was sent"
                case _:
                    raise AssertionError(answer)


def whole(sim: TwilioSim) -> list[Frame]:
    """Return the messages of a call from its start to its end."""
    second = [frame for _ in range(6) for frame in sim.audio(bytes(2 * sim.rate // 50))]
    told = [sim.digit("1"), sim.digit("#"), sim.played("1-200"), sim.played("1-360"), sim.stop()]
    return [*sim.start(), *second, *(frame for frame in told if frame is not None), *second]


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_a_call_in_any_order_ends_in_words(sim: type[TwilioSim]) -> None:
    @settings(max_examples=120, deadline=None)
    @given(scrambled(whole(sim())), st.lists(st.sampled_from(sorted(HAPPENS)), max_size=40))
    def fuzz(frames: list[Frame], happens: list[str]) -> None:
        call = Driven()
        for number, frame in enumerate(frames):
            call.take(frame)
            call.tell(HAPPENS[happens[number]] if number < len(happens) else [])

    fuzz()


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_a_call_that_is_not_scrambled_is_heard_to_its_end(sim: type[TwilioSim]) -> None:
    line = sim()
    call = Driven()
    for frame in whole(line):
        call.take(frame)
    # Of six times 20 ms; two of Telnyx's frames come too late, and a resampler holds a little back.
    assert call.over == (line.stop() is not None) and call.heard > 3.5 * 640


def test_a_reply_may_be_told_to_be_over_twice() -> None:
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
def test_a_wrong_codec_is_named_or_taken_for_what_it_is(
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
        assert carrier is not None and carrier.heard.rate in (8000, 16000, 24000, 48000)


class AudioSocketCall:
    """A call of AudioSocket, driven as its server does."""

    def __init__(self) -> None:
        self.packets = Packets()
        self.phone: Phone | None = None
        self.over = False

    def feed(self, data: bytes) -> None:
        for came in self.packets.feed(data):
            if not self.over:
                self.take(came)

    def take(self, came: bytes) -> None:
        try:
            if self.phone is None:
                carrier = started(came)
                self.phone = Phone(carrier, Options()) if carrier else None
                return
            for answer in self.phone.receive(came):
                assert isinstance(answer, Hear | Interrupt | AddText | Respond | HangUp)
                self.over = self.over or isinstance(answer, HangUp)
        except ProtocolError as error:
            assert str(error)
            self.over = True


PACKETS = st.builds(
    packet,
    st.sampled_from([0x00, 0x01, DTMF, 0x02, *SPOKEN, 0x11, 0xFF]),
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
def test_the_queue_of_audiosocket_is_bounded_and_loses_nothing_else(words: list[Frame]) -> None:
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
            assert len(waiting) == MOST_QUEUED
            return
        held = word == "hold" or (held and word not in ("release", "clear"))
        if word == "clear":
            waiting.clear()
        elif word not in ("hold", "release"):
            waiting.append(word)
        assert len(waiting) <= MOST_QUEUED


def test_audiosocket_is_a_carrier() -> None:
    assert [AudioSocket(kind).heard.rate for kind in SPOKEN] == list(SPOKEN.values())
