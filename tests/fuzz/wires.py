"""Coverage-guided fuzzing of each wire with atheris, which ``make fuzz`` installs and runs.

    python tests/fuzz/wires.py WIRE [libFuzzer's flags, such as -max_total_time=60]

A crash is an exception that is not the protocol's own error, or a check of the tests' drivers that fails; its
input is written to a file, which the same command replays. Lines of an input are messages; one that is no
UTF-8 is binary.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parent.parent))

with atheris.instrument_imports(include=["rejoinder.agent"]):
    from support.callers.carriers import SIMS
    from support.scrambled.handshakes import HEAD, ODD, PLAIN, handshake
    from support.scrambled.phone import HAPPENS, AudioSocketCall, Driven, whole
    from support.scrambled.realtime import ACTS, SCRIPT, Line, check_items, check_responses

    from rejoinder.agent.wires.audiosocket.protocol import packet
    from rejoinder.agent.wires.commands import ReadMore
    from rejoinder.agent.wires.pcm.protocol import Pcm
    from rejoinder.agent.wires.wyoming.protocol import Event, Events, encode
    from rejoinder.agent.wires.wyoming.requests import Requests
    from rejoinder.pipeline import Options, ProtocolError, ReplyDone, ReplyStarted

ACT = sorted(HAPPENS)


def frames(data: bytes) -> list[str | bytes]:
    """Return the messages in an input."""
    found: list[str | bytes] = []
    for line in data.split(b"\n"):
        try:
            found.append(line.decode())
        except UnicodeDecodeError:
            found.append(line)
    return found


def phone(data: bytes) -> None:
    """Hold a telephone call; the length of each message says what happens behind it."""
    call = Driven()
    for frame in frames(data):
        call.take(frame)
        call.tell(HAPPENS[ACT[len(frame) % len(ACT)]])


def audiosocket(data: bytes) -> None:
    """Hold a call of AudioSocket, whose bytes come in two pieces."""
    call = AudioSocketCall()
    call.feed(data[: len(data) // 2])
    call.feed(data[len(data) // 2 :])


def pcm(data: bytes) -> None:
    """Hold a call of raw PCM; the length of each message says what happens behind it.

    A session ends a reply once, so nothing ends here that has not started.
    """
    wire, replying = Pcm(Options()), False
    for frame in frames(data):
        answers = wire.receive(frame)
        while answers and isinstance(answers[-1], ReadMore):
            answers += wire.read_more()
        for event in HAPPENS[ACT[len(frame) % len(ACT)]]:
            if replying or not isinstance(event, ReplyDone):
                answers += wire.handle(event)
            replying = not isinstance(event, ReplyDone) and (replying or isinstance(event, ReplyStarted))
        json.dumps([answer for answer in answers if isinstance(answer, dict)])


def wyoming(data: bytes) -> None:
    """Send events of Wyoming in two pieces, until an error ends the connection."""
    protocol, requests = Events(), Requests()
    try:
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            for event in protocol.feed(piece):
                requests.take(event)
    except ProtocolError as error:
        assert error.code and str(error)


def realtime(data: bytes) -> None:
    """Hold a call of the Realtime protocol, in which something happens behind each message."""
    line = Line()
    for frame in frames(data):
        line.say(frame)
        line.happen(ACTS[len(frame) % len(ACTS)])
    check_items(line)
    for turn in list(line.live):
        line.end(turn, "completed")
    check_responses(line.events)


def handshakes(data: bytes) -> None:
    """Send requests and handshakes in two pieces; the first byte says where they are cut."""
    place = 1 + len(data) * (data[0] if data else 0) // 256
    handshake([piece for piece in (data[1:place], data[place:]) if piece])


def joined(messages: list[str | bytes]) -> bytes:
    """Return messages as an input."""
    return b"\n".join(one.encode() if isinstance(one, str) else one for one in messages)


PCM = base64.b64encode(bytes(16)).decode()
FORMAT = {"rate": 16_000, "width": 2, "channels": 1}
EVENTS = [
    Event("describe"),
    Event("ping", {"text": "1"}),
    Event("transcribe", {"language": "en"}),
    Event("audio-start", FORMAT),
    Event("audio-chunk", FORMAT, bytes(16)),
    Event("audio-stop"),
    Event("synthesize-start", {"voice": {"name": "a"}}),
    Event("synthesize-chunk", {"text": "Yes."}),
    Event("synthesize-stop"),
    Event("synthesize", {"text": "Yes."}),
    Event("transcript", {"text": "Hi.", "context": {"conversation_id": "1"}}),
]
SAID = [
    {"type": "text", "text": "Hi."},
    {"type": "reply"},
    {"type": "played", "turn": 1, "ms": 20},
    {"type": "interrupt"},
    {"type": "end_turn"},
    {"type": "options", "instructions": "Be kind."},
]
CLIENT = [json.dumps({**one, "audio": PCM} if "audio" in one else one) for one in SCRIPT]
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "phone": (phone, [joined(whole(sim())) for sim in SIMS]),
    "audiosocket": (
        audiosocket,
        [
            packet(1, bytes(16)) + packet(3, b"1") + packet(kind, bytes(8)) * 3 + packet(0)
            for kind in (16, 18)
        ],
    ),
    "handshake": (
        handshakes,
        [b"\x80" + head + odd + b"\r\n" for head in (HEAD, PLAIN) for odd, _ in ODD.values()],
    ),
    "pcm": (
        pcm,
        [
            joined([bytes(64), *map(json.dumps, SAID), bytes(32_000)]),
            *(json.dumps(one).encode() for one in SAID),
        ],
    ),
    "wyoming": (wyoming, [b"".join(map(encode, EVENTS)), *map(encode, EVENTS)]),
    "realtime": (realtime, [joined([*CLIENT]), *(one.encode() for one in CLIENT)]),
}


def main() -> None:
    """Fuzz one wire."""
    name, *flags = sys.argv[1:]
    target, seeds = TARGETS[name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        given = [flag for flag in flags if not flag.startswith("-")]
        atheris.Setup([sys.argv[0], *flags, *([] if given else [corpus])], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
