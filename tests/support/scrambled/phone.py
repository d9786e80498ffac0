"""Telephone calls whose messages are scrambled, driven without sockets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from support.callers.carriers import TwilioSim
from support.scrambled.frames import Frame

from rejoinder.agent.wires.audiosocket.protocol import (
    Packets,
    started,
)
from rejoinder.agent.wires.commands import AddText, HangUp, Hear, Interrupt, Respond, Truncate
from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.protocol import Phone, sniff
from rejoinder.pipeline import (
    AudioChunk,
    Event,
    Options,
    OverlapEnded,
    OverlapStarted,
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
                self._follow(self.phone.handle(event))
            if self.phone.flush_after is not None:
                self._follow(self.phone.flush())
            assert self.phone.flush_after is None, "what waited has gone out"

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
    sent = [sim.digit("1"), sim.digit("#"), sim.played("1-200"), sim.played("1-360"), sim.stop()]
    return [*sim.start(), *second, *(frame for frame in sent if frame is not None), *second]


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
