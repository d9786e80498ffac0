"""The way of one chunk of audio through a call: the functions between the socket and the session.

To print it: ``PYTHONPATH=tests python tests/wires/test_hops.py``. A hop is one call of a function of this
project, or one step of a generator. The way in begins when the socket's ``receive`` returns and ends when
``Session.hear`` begins. The way out begins when the session's channel of events returns audio and ends when
the socket's ``send_text`` or ``send_bytes`` begins.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import MutableMapping
from itertools import takewhile
from traceback import walk_stack
from types import FrameType
from typing import Any

import pytest
from starlette.datastructures import URL
from starlette.websockets import WebSocketState
from support.paths import ROOT

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import ResumableSocket, SocketLease
from rejoinder.agent.wires.transport import WebSocketTransport
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurnModel, ScriptedVad
from rejoinder.pipeline import Channel, Models, Options, ReplyAudio, Session

FRAME_SECONDS = 0.02
SPEECH = (b"\x00\x30" * 24 + b"\x00\xd0" * 24) * 10
"""One chunk of speech: a square wave of 500 Hz, 16-bit mono at 24 kHz."""
OURS = tuple(f"{ROOT}/{folder}/" for folder in ("agent/wires", "models", "pipeline"))
Hop = tuple[str, str]
"""A function, and the file that it is in."""


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(OURS)


def hop(frame: FrameType) -> Hop:
    return frame.f_code.co_qualname, frame.f_code.co_filename.removeprefix(f"{ROOT}/")


class Walks:
    """Records the hops of each chunk, in and out. Use it as the profiler of the thread."""

    def __init__(self) -> None:
        self.ways: dict[str, Counter[tuple[Hop, ...]]] = {"in": Counter(), "out": Counter()}
        self._way = ""
        self._hops: list[Hop] = []
        self._entered: set[FrameType] = set()
        self._standing: set[FrameType] = set()

    def arrives(self) -> None:
        """Begin the way in, with the functions between the socket and the loop that reads it."""
        stack = [frame for frame, _ in walk_stack(sys._getframe(1))]
        between = takewhile(lambda frame: frame not in self._standing, stack)
        self._way, self._hops = "in", [hop(frame) for frame in between if is_ours(frame)]
        self._standing = set(stack)

    def end(self, way: str) -> None:
        if self._way == way:
            self.ways[way][tuple(self._hops)] += 1
        self._way = ""

    def usual(self, way: str) -> tuple[Hop, ...]:
        """Return the hops of most chunks."""
        return self.ways[way].most_common(1)[0][0]

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take one event of the interpreter; see ``sys.setprofile``."""
        code = frame.f_code
        if event == "return" and code is Channel.receive.__code__ and isinstance(argument, ReplyAudio):
            self._way, self._hops = "out", []
        elif event == "call" and self._way and is_ours(frame) and self._is_hop(frame):
            self._hops.append(hop(frame))
            if code is Session.hear.__code__:
                self.end("in")

    def _is_hop(self, frame: FrameType) -> bool:
        """Return whether this is a call, or a step of a generator; a coroutine that goes on is neither."""
        goes_on = frame in self._entered
        self._entered.add(frame)  # which also keeps its identity from being used again
        return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) or not goes_on


class Line:
    """A socket over which speech and then silence comes, a chunk every 20 ms."""

    application_state = WebSocketState.CONNECTED
    client = None
    url = URL("/v1/realtime")

    def __init__(self, walks: Walks, realtime: bool) -> None:
        self.scope: dict[str, Any] = {}
        self._walks, self._realtime, self._sent = walks, realtime, 0

    async def receive(self) -> MutableMapping[str, Any]:
        await asyncio.sleep(FRAME_SECONDS)
        self._sent += 1
        if self._sent > 200:
            return {"type": "websocket.disconnect", "code": 1000}
        pcm = SPEECH if self._sent < 75 else bytes(len(SPEECH))
        append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
        frame = {"text": json.dumps(append)} if self._realtime else {"bytes": pcm}
        self._walks.arrives()
        return {"type": "websocket.receive", **frame}

    async def send_text(self, data: str) -> None:
        self._walks.end("out")

    async def send_bytes(self, data: bytes) -> None:
        self._walks.end("out")

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """End."""


def walk(kind: str) -> Walks:
    """Hold a call in virtual time; return the hops of its chunks."""
    walks = Walks()
    line: Any = Line(walks, kind == "realtime")
    llm = ScriptedLlm(["An answer of five seconds and some more, as it goes on and on."])
    tts = ScriptedTts(rate=22_050)
    models = Models(ScriptedVad(), ScriptedStt(["hello"]), llm, tts, ScriptedTurnModel())

    async def hold() -> None:
        if kind == "realtime":
            wire = Realtime(Options())
            socket = ResumableSocket(SocketLease(WebSocketTransport(line)), wire, 30.0)
            await Call(socket, models, Options(), wire, None).run()
        else:
            wire = Pcm(Options(), 24_000, 24_000)
            await Call(WebSocketTransport(line), models, Options(), wire, None).run()

    sys.setprofile(walks.profile)
    try:
        virtual_clock.run(hold())
    finally:
        sys.setprofile(None)
    return walks


def files(hops: tuple[Hop, ...]) -> int:
    return len({file for _, file in hops})


@pytest.mark.parametrize(("kind", "into", "out"), [("pcm", 10, 6), ("realtime", 14, 10)])
def test_hops_of_a_chunk_are_bounded(kind: str, into: int, out: int) -> None:
    walks = walk(kind)
    assert len(walks.usual("in")) <= into and len(walks.usual("out")) <= out


def test_diagram_in_the_documentation_has_the_same_functions() -> None:
    page = (ROOT / "docs" / "design" / "index.md").read_text()
    realtime, pcm = walk("realtime"), walk("pcm")
    for way, node in (("in", "i"), ("out", "o")):
        drawn = dict(re.findall(rf'\b({node}\d+)\["(\d+ [\w.]+)"\]', page))
        hops = enumerate((function for function, _ in realtime.usual(way)), 1)
        assert drawn == {f"{node}{number}": f"{number} {function}" for number, function in hops}
    sizes = [len(walks.usual(way)) for walks in (realtime, pcm) for way in ("in", "out")]
    said = r"passes (\d+) functions on its way in, and (\d+) on its way out.*?it passes (\d+) and (\d+)\."
    assert re.findall(said, page, re.DOTALL) == [tuple(map(str, sizes))]


if __name__ == "__main__":
    for name in ("pcm", "realtime"):
        found = walk(name)
        for way in found.ways:
            hops = found.usual(way)
            print(f"{name}, {way}: {len(hops)} hops, {files(hops)} files")
            for function, file in hops:
                print(f"    {function:40} {file}")
