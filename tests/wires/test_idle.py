"""When the frames of silent calls are read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import QUIET, SPEECH_CHUNK
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.idle_reads import (
    CLOCK_SECONDS,
    GROUP_READ_SECONDS,
    IDLE_READ_SECONDS,
    LATEST_READ_SECONDS,
    LONG_IDLE_SECONDS,
    may_skip_a_read,
    until_next_read,
)
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.realtime.input import HELD_SECONDS
from rejoinder.agent.wires.transport import Disconnected, Frame, Message
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad, ScriptedVadStream
from rejoinder.pipeline import RATE, AudioChunk, Models, Options, Vad
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.listening.user_audio import IDLE_SLICE

FRAME_SECONDS = 0.02


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e3))
def test_late_call_returns_to_its_own_read_times(began: float, late: float) -> None:
    now = began + late
    wait = until_next_read(now, began)
    assert CLOCK_SECONDS < wait <= IDLE_READ_SECONDS + GROUP_READ_SECONDS + CLOCK_SECONDS
    behind = (now + wait - began) % IDLE_READ_SECONDS
    assert min(behind, IDLE_READ_SECONDS - behind) <= GROUP_READ_SECONDS + 1e-6
    grid = (now + wait) / GROUP_READ_SECONDS
    assert abs(grid - round(grid)) < 1e-4


def test_calls_read_together_return_to_separate_read_times() -> None:
    now = 10.0  # all of them are late, and done at the same moment
    assert len({round(until_next_read(now, began), 6) for began in (0.000, 0.017, 0.056, 0.101)}) == 4
    assert until_next_read(now, 0.0561) == until_next_read(now, 0.0599), "those that are close stay together"


@pytest.mark.parametrize("place", range(1, 40))
def test_call_at_its_read_time_waits_for_the_next_one(place: int) -> None:
    assert until_next_read(10.0 + place * IDLE_READ_SECONDS, 10.0) > IDLE_READ_SECONDS / 2


@pytest.mark.parametrize(
    ("now", "last_active", "since", "may"),
    [
        (9.0, 0.0, 9.0 - IDLE_READ_SECONDS, True),
        (9.0, 0.0, 9.0 - LATEST_READ_SECONDS, False),  # its second of unheard audio would fill up
        (9.0, 8.0, 9.0 - IDLE_READ_SECONDS, False),  # a caller may answer a recent reply at once
    ],
)
def test_only_long_silent_calls_may_skip_a_read(
    now: float, last_active: float, since: float, may: bool
) -> None:
    assert may_skip_a_read(now, last_active, since) is may


@dataclass
class Busy:
    """An engine that others wait for, from one time to another."""

    begins: float
    ends: float
    age: float = 0.0

    @property
    def pressing(self) -> bool:
        return self.begins <= asyncio.get_running_loop().time() < self.ends


class Line:
    """A socket over which a frame of 20 ms comes at its time: silence, and from ``speaks`` on speech.

    reads: the times at which the call asked for more. asks: whether the client asks for a reply first, and
    sends nothing until it was ``answered``.
    """

    def __init__(self, speaks: float, ends: float, asks: bool = False) -> None:
        self.reads: list[float] = []
        self.answered = 0.0
        self._over = asyncio.Event()
        self._waits = asks
        self._speaks, self._ends, self._sent, self._asks = speaks, ends, 0, asks

    async def receive(self) -> list[Frame] | Disconnected:
        loop = asyncio.get_running_loop()
        if self._asks:
            self._asks = False
            return ['{"type": "reply"}']
        if self._waits:
            await self._over.wait()
            await asyncio.sleep(self.answered - loop.time())
        self.reads.append(loop.time())
        if loop.time() >= self._ends:
            return Disconnected(1000)
        await asyncio.sleep(max(0.0, (self._sent + 1) * FRAME_SECONDS - loop.time()))
        frames: list[Frame] = [self._next()]
        return frames + [self._next() for _ in range(round(loop.time() / FRAME_SECONDS) - self._sent)]

    def _next(self) -> bytes:
        self._sent += 1
        return SPEECH_CHUNK if self._sent * FRAME_SECONDS > self._speaks else QUIET

    async def send(self, messages: Sequence[Message]) -> None:
        """Take messages."""
        if any(isinstance(one, dict) and one["type"] == "reply_ended" for one in messages):
            self.answered = asyncio.get_running_loop().time() + 1.0  # by then it has been heard, too
            self._sent = round(self.answered / FRAME_SECONDS)
            self._over.set()


class SharedStream(ScriptedVadStream):
    async def feed_together(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        await asyncio.sleep(0)
        return self.feed(chunk)


class SharedVad(ScriptedVad):
    """Voice activity that waits for what others hear."""

    def stream(self) -> SharedStream:
        return SharedStream()


def reads(
    speaks: float, ends: float, busy: Busy, options: Options | None = None, vad: Vad | None = None
) -> list[float]:
    """Return the read times of a call whose caller begins to speak while other calls wait for a model."""
    line = Line(speaks, ends)
    hold(line, busy, options, vad)
    return line.reads


def hold(line: Line, busy: Busy, options: Options | None = None, vad: Vad | None = None) -> None:
    """Hold a call over this line."""
    said = "An answer of five seconds and some more, as it goes on and on and does not want to end. "
    vad = vad or ScriptedVad()
    models = Models(
        vad, ScriptedStt(["hello"]), ScriptedLlm([said]), ScriptedTts(), load_shedder=LoadShedder()
    )
    models.load_shedder.engines = [busy]  # type: ignore[list-item]
    virtual_clock.run(Call(line, models, options or Options(), Pcm(Options()), None).run())


def test_long_silent_call_is_not_read_while_others_wait() -> None:
    begins = LONG_IDLE_SECONDS + 1.0
    found = reads(20.0, 10.0, Busy(begins, begins + 2.0))
    rests = {round(begin, 3): end - begin for begin, end in pairwise(found)}
    before = [rest for begin, rest in rests.items() if 1.0 < begin < begins - 1.0]
    during = [rest for begin, rest in rests.items() if begins < begin < begins + 1.0]
    assert max(before) <= IDLE_READ_SECONDS + FRAME_SECONDS
    assert during and IDLE_READ_SECONDS * 2 < max(during) <= LATEST_READ_SECONDS + FRAME_SECONDS
    assert all(
        rest <= IDLE_READ_SECONDS + FRAME_SECONDS for begin, rest in rests.items() if begin > begins + 2.0
    )


def test_new_call_is_read_while_others_wait() -> None:
    found = reads(20.0, LONG_IDLE_SECONDS - 0.5, Busy(0.0, 60.0))
    assert max(end - begin for begin, end in pairwise(found)) <= IDLE_READ_SECONDS + FRAME_SECONDS


def test_speaking_caller_is_read_frame_by_frame_while_others_wait() -> None:
    speaks = LONG_IDLE_SECONDS + 2.0
    found = reads(speaks, speaks + 3.0, Busy(0.0, 60.0))
    later = [read for read in found if read > speaks + LATEST_READ_SECONDS + 2 * FRAME_SECONDS]
    assert max(end - begin for begin, end in pairwise(later)) <= FRAME_SECONDS + 1e-6


def test_speaking_caller_is_read_as_soon_with_a_batching_vad() -> None:
    inline, shared = (reads(2.05, 4.0, Busy(0.0, 0.0), None, vad) for vad in (ScriptedVad(), SharedVad()))
    assert len(shared) > 80 and shared == inline


@pytest.mark.parametrize("limits", [{"idle_s": 60.0}, {"max_call_s": 60.0}])
def test_no_limit_expires_while_speech_is_unread(limits: dict[str, float]) -> None:
    options = Options(**limits)  # type: ignore[arg-type]
    found = reads(20.0, LONG_IDLE_SECONDS + 4.0, Busy(0.0, 60.0), options)
    assert max(end - begin for begin, end in pairwise(found)) <= IDLE_READ_SECONDS + FRAME_SECONDS


def test_call_with_a_recent_reply_is_read_while_others_wait() -> None:
    """This includes a push-to-talk client, which sends nothing while the agent speaks."""
    line = Line(20.0, 14.0, asks=True)
    hold(line, Busy(0.0, 60.0))
    assert LONG_IDLE_SECONDS < line.answered < 9.0
    found = [read for read in line.reads if 0.0 < read - line.answered < 3.0]
    assert len(found) > 10
    assert max(end - begin for begin, end in pairwise(found)) <= IDLE_READ_SECONDS + FRAME_SECONDS


def test_messages_read_together_reach_the_session_together() -> None:
    assert LATEST_READ_SECONDS <= HELD_SECONDS and LATEST_READ_SECONDS * RATE <= IDLE_SLICE
