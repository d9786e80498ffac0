"""Messages that are long, broken or deep, against the protocol objects alone: judged before they are read."""

import base64
import json
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from rejoinder.agent.server.frames import PACKED, PORTION_BYTES, Portions
from rejoinder.agent.server.http.completion_request import MAX_BODY, read
from rejoinder.agent.wires.commands import AddItem, AddRecording, Hear, ReadMore
from rejoinder.agent.wires.json_limits import MAX_DEPTH, early, excess
from rejoinder.agent.wires.long_messages import MAX_MESSAGE_CHARS, SHORTEST, Long
from rejoinder.agent.wires.realtime.messages import LongAudioAppend
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.reading import read_message
from rejoinder.agent.wires.realtime.shapes import MAX_RECORDING
from rejoinder.pipeline import Options, ProtocolError

MOST = 15 * 2**20


@cache
def noise() -> bytes:
    """Return almost as much audio as a message may have."""
    made = np.random.default_rng(0).integers(-(2**15), 2**15, MOST * 3 // 8 - 64)
    return made.astype("<i2").tobytes()


@cache
def recorded() -> str:
    """Return it in base64."""
    return base64.b64encode(noise()).decode()


def receive(text: str) -> list[Any]:
    return list(Realtime(Options()).receive(text))


def refusal(text: str) -> dict[str, Any]:
    (event,) = receive(text)
    assert event["type"] == "error"
    error: dict[str, Any] = event["error"]
    return error


def peak(run: Callable[[], Any]) -> int:
    """Return the bytes that something allocates at most."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def list_of(entry: str, size: int) -> str:
    return f"[{','.join([entry] * (size // (len(entry) + 1)))}]"


def update(prompt: str) -> str:
    return f'{{"type": "session.update", "event_id": "mine", "session": {{"prompt": {prompt}}}}}'


def append(audio: str) -> str:
    return f'{{"type": "input_audio_buffer.append", "event_id": "mine", "audio": "{audio}"}}'


def keys(count: int, value: str = "0") -> str:
    members = ",".join(f'"{key:07x}":{value}' for key in range(count))
    return f"{{{members}}}"


LONG = {
    "list": lambda: update(list_of("0", MOST - 200)),
    "keys": lambda: update(keys(MOST // 12 - 200)),
    "broken": lambda: update(list_of("0", MOST - 200))[:-3],
    "instructions": lambda: update(f'"{"a word " * (MOST // 7 - 200)}"'),
    "instructions in French": lambda: update(f'"{"é" * (MOST // 2 - 200)}"'),
    "instructions that look like audio": lambda: update(f'"{recorded()[:-200]}"'),
    "audio in another place": lambda: append(recorded()).replace(
        "input_audio_buffer.append", "response.create"
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_what_may_not_be_long_is_refused_without_being_parsed(name: str) -> None:
    text = LONG[name]()
    error = refusal(text)
    assert (error["code"], error["event_id"]) == ("invalid_value", "mine")
    assert str(len(text.encode())) in error["message"] and str(MAX_MESSAGE_CHARS) in error["message"]
    assert peak(lambda: receive(text)) < 2.5 * len(text), "what came is not built into objects"


def test_of_what_comes_in_pieces_only_the_audio_is_kept() -> None:
    def feed(text: bytes) -> Long:
        long = Long()
        for at in range(0, len(text), PORTION_BYTES):
            long.feed(text[at : at + PORTION_BYTES])
        long.end()
        return long

    kept = LONG["list"]().encode()
    assert peak(lambda: feed(kept)) < 2**20
    assert feed(kept).too_long and len(feed(kept).text) == MAX_MESSAGE_CHARS
    assert len(feed(append(recorded()).encode()).text) < 2**14, "marks"


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "input_audio_buffer.append", "audio": "AUDIO"}',
        '{"audio":\n\t "AUDIO" ,"event_id" : "mine",\r\n "type":"input_audio_buffer.append"}  ',
    ],
)
@pytest.mark.parametrize("escapes", [{}, {"/": "\\/"}, {"+": "\\u002B", "/": "\\/", "=": "\\u003d"}])
def test_15_mib_of_audio_may_be_written_in_any_way(text: str, escapes: dict[str, str]) -> None:
    audio = base64.b64encode(noise()[: len(noise()) * 4 // 5 // 6 * 6 - 2]).decode()
    assert audio.endswith("=")
    for plain, escaped in escapes.items():
        audio = audio.replace(plain, escaped)
    message = read_message(text.replace("AUDIO", audio))
    assert isinstance(message, LongAudioAppend)
    data = message.audio
    wanted = base64.b64decode(from_json(f'"{audio}"'))
    assert b"".join(data.decoded()) == wanted and data.size == len(wanted)


@pytest.mark.parametrize("kind", ["audio/pcm", "audio/pcmu"])
def test_long_audio_is_heard_as_short_audio_is(kind: str) -> None:
    wires = [Realtime(Options()), Realtime(Options())]
    session = {"audio": {"input": {"format": {"type": kind}}}}
    for wire in wires:
        list(wire.receive(json.dumps({"type": "session.update", "session": session})))

    def heard(wire: Realtime, data: bytes) -> bytes:
        audio = base64.b64encode(data).decode()
        answers = [*wire.receive(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))]
        while answers[-1:] == [ReadMore()]:
            answers[-1:] = wire.read_more()
        return b"".join(answer.pcm for answer in answers if isinstance(answer, Hear))

    data = noise()[:200_000]
    assert len(base64.b64encode(data)) > MAX_MESSAGE_CHARS
    short = b"".join(heard(wires[0], data[at : at + 8_000]) for at in range(0, len(data), 8_000))
    assert heard(wires[1], data) == short


BROKEN: dict[str, Callable[[str], str]] = {
    "too short": lambda audio: audio[:-1],
    "goes on after its end": lambda audio: f"{audio[:-8]}=AAA",
    "begins with its end": lambda audio: f"====={audio[:-5]}",
    "ends twice": lambda audio: audio + "====",
}


@pytest.mark.parametrize("audio", BROKEN)
def test_long_audio_that_is_no_base64_is_refused(audio: str) -> None:
    error = refusal(append(BROKEN[audio](recorded())))
    assert error["message"] == "audio is not valid base64"
    assert (error["code"], error["param"], error["event_id"]) == ("invalid_value", "audio", "mine")


def test_long_audio_with_half_a_sample_is_refused() -> None:
    audio = base64.b64encode(noise()[:999_999]).decode()
    error = refusal(append(audio))
    assert error["param"] == "audio" and "not 999999" in error["message"]


def item(*content: dict[str, Any]) -> str:
    made = {"type": "message", "role": "user", "content": content}
    return json.dumps({"type": "conversation.item.create", "item": made})


def test_an_item_may_have_long_audio() -> None:
    audio = base64.b64encode(noise()[: 48_000 * 20]).decode()
    (_, recording) = receive(item({"type": "input_audio", "audio": audio}))
    assert isinstance(recording, AddRecording) and abs(len(recording.pcm) - 32_000 * 20) < 200
    said = {"type": "input_audio", "transcript": "hello", "audio": audio}
    written = {"type": "input_text", "text": "a word " * 1000}
    add, *_ = receive(item(said, written, said))
    assert isinstance(add, AddItem) and add.entry.text == f"hello {'a word ' * 1000} hello"


def test_the_audio_of_an_item_has_a_limit_of_its_own() -> None:
    error = refusal(item({"type": "input_audio", "audio": recorded()}))
    assert error["param"] == "item.content.0.audio" and str(MAX_RECORDING) in error["message"]
    error = refusal(item({"type": "input_text", "text": recorded()}))
    assert str(MAX_MESSAGE_CHARS) in error["message"]


def test_broken_json_is_read_once_and_its_event_id_is_found_all_the_same() -> None:
    text = update(list_of("0", 8_000))
    assert refusal(text[:-1])["event_id"] == refusal(text.replace("}}", "]}"))["event_id"] == "mine"
    assert refusal(text[:-1])["code"] == "invalid_json"
    assert peak(lambda: receive(text[:-1])) < 3 * peak(lambda: from_json(text, allow_inf_nan=False))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (update("[" * MAX_DEPTH + "]" * MAX_DEPTH), f"nested more than {MAX_DEPTH} deep"),
        (update(list_of("[]", 60_000)), "more than 8192 values"),
        (update(keys(9_000, "{}")), "more than 8192 values"),
        (update(list_of('"' + "[,{" * 6 + '"', 100_000)), ""),
        (update(list_of("1" * 4_000, 100_000)), "a number with more than 1000 digits"),
    ],
)
def test_what_takes_long_to_parse_for_its_length_is_refused(text: str, reason: str) -> None:
    if not reason:
        assert receive(text)[1]["type"] == "session.updated"
        return
    error = refusal(text)
    assert reason in error["message"]
    assert (error["code"], error["event_id"]) == ("invalid_json", "mine")


@pytest.mark.parametrize("field", ["tools", "input"])
def test_only_the_first_of_many_mistakes_is_looked_for(field: str) -> None:
    text = f'{{"type": "response.create", "response": {{"{field}": {list_of("0", 16_000)}}}}}'
    assert refusal(text)["param"] == f"response.{field}.0"
    assert peak(lambda: receive(text)) < 2**20


@pytest.mark.parametrize("begin", ['"content": [', '"role": "assistant", "tool_calls": ['])
def test_a_request_with_thousands_of_mistakes_is_refused_for_the_first(begin: str) -> None:
    def refuse(messages: str) -> None:
        with pytest.raises(ProtocolError):
            read(f'{{"model": "default", "messages": {messages}}}'.encode())

    assert peak(lambda: refuse(f'[{{"role": "user", {begin}{list_of("0", 30_000)[1:]}}}]')) < 4 * 2**20
    full = list_of("{}", MAX_BODY - 50)
    assert peak(lambda: refuse(full)) < 5 * len(full)


# --- properties ---------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{},:/+é\n0'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\[,'), inner, max_size=4),
    max_leaves=12,
)


def size_of(value: Any) -> tuple[int, int]:
    """Return how many values are in a value, and how deep it is."""
    if not isinstance(value, list | dict):
        return 0, 0
    parts = [size_of(one) for one in (value.values() if isinstance(value, dict) else value)]
    return max(1, len(parts)) + sum(part[0] for part in parts), 1 + max(
        (part[1] for part in parts), default=0
    )


@given(JSON, st.booleans())
def test_values_are_counted_as_a_parser_would(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    count, _ = size_of(value)
    assert excess(text, count) == ""
    assert count == 0 or "values" in excess(text, count - 1)


@given(st.integers(1, 2 * MAX_DEPTH), st.text('[]{}"\\'))
def test_depth_is_that_of_the_value(depth: int, inside: str) -> None:
    value: Any = [inside]
    for number in range(depth - 1):
        value = [value] if number % 2 else {inside: value}
    assert bool(excess(json.dumps(value), 10_000)) == (depth > MAX_DEPTH)


@given(st.text('{}[]",\\ :a1') | JSON.map(json.dumps))
def test_whatever_it_is_judging_it_does_not_fail(text: str) -> None:
    excess(text, 3)
    found = early(text, "a")
    try:
        value = json.loads(text)
    except ValueError:
        return
    if found is not None:
        assert isinstance(value, dict) and isinstance(value["a"], str)


BASE64 = st.text("AZaz09+/=\\ué ", max_size=8).map(lambda part: part * (SHORTEST // 4))
PARTS = st.fixed_dictionaries({}, optional={"a": BASE64, "b": BASE64, "c": st.lists(BASE64, max_size=2)})


def escaped(text: str, how: dict[str, str]) -> str:
    """Write a text's characters as escapes, but for the slashes that begin escapes already."""
    for plain, written in how.items():
        text = text.replace(plain, written)
    return text


@given(
    PARTS,
    st.lists(st.integers(1, 70_000), min_size=1, max_size=5),
    st.dictionaries(st.sampled_from("/+="), st.just(""), max_size=3),
)
def test_a_text_whose_audio_was_cut_out_says_the_same(
    value: dict[str, Any], sizes: list[int], how: dict[str, str]
) -> None:
    codes = {"/": "\\/", "+": "\\u002B", "=": "\\u003d"}
    text = escaped(json.dumps(value, ensure_ascii=False), {plain: codes[plain] for plain in how}).encode()
    long, at = Long(), 0
    for number in range(len(text)):
        if at >= len(text):
            break
        size = sizes[number % len(sizes)]
        long.feed(text[at : at + size])
        at += size
    long.end()
    assert long.size == len(text)

    def whole(found: Any) -> Any:
        if isinstance(found, dict):
            return {name: whole(one) for name, one in found.items()}
        if isinstance(found, list):
            return [whole(one) for one in found]
        audio = long.audio(found)
        return found if audio is None else b"".join(audio.pieces).decode()

    if (
        len(text) <= MAX_MESSAGE_CHARS
        and "\\" not in str(value)
        and " " not in str(value)
        and "é" not in str(value)
    ):
        assert whole(from_json(long.text)) == value == json.loads(text)
        assert long.is_found


FRAMES = st.lists(
    st.tuples(
        st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.CLOSE]),
        st.sampled_from([0, 1, 125, 126, 60_000, PORTION_BYTES, PORTION_BYTES + 1, 2 * PORTION_BYTES + 1]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
)


@given(FRAMES, st.lists(st.integers(1, 300_000), min_size=1, max_size=4))
def test_frames_in_portions_say_the_same(
    frames: list[tuple[Opcode, int, bool, bool]], sizes: list[int]
) -> None:
    sent, wanted = b"", []
    for opcode, size, fin, packed in frames:
        control = opcode in (Opcode.PING, Opcode.CLOSE)
        data = noise()[:125] if control else noise()[:size]
        frame, packed = Frame(opcode, data, fin or control), packed and opcode in (Opcode.TEXT, Opcode.BINARY)
        written = bytearray(frame.serialize(mask=True))
        written[0] |= PACKED if packed else 0
        sent += written
        wanted.append((frame.opcode, data, frame.fin, packed))
    portions, at, number, reader, found = Portions(MOST), 0, 0, StreamReader(), list[Any]()
    while at < len(sent):
        size = sizes[number % len(sizes)] * (1 if number < 50 else 10_000)
        portions.add(sent[at : at + size])
        at, number = at + size, number + 1
        while portions.waiting:
            portion = portions.take()
            assert len(portion) <= 2 * PORTION_BYTES + 32
            reader.feed_data(portion)
    while reader.buffer:
        packed = bool(reader.buffer[0] & PACKED)
        reader.buffer[0] &= ~PACKED
        parsing = Frame.parse(reader.read_exact, mask=True)
        try:
            while True:
                next(parsing)
        except StopIteration as end:
            end.value.rsv1 = packed
            found.append(end.value)
    assert all(len(frame.data) <= PORTION_BYTES for frame in found)
    pieces = iter(found)
    for opcode, data, fin, packed in wanted:
        frame = next(pieces)
        assert (frame.opcode, frame.rsv1) == (opcode, packed)
        whole = frame.data
        while len(whole) < len(data):
            assert not frame.fin
            frame = next(pieces)
            assert frame.opcode is Opcode.CONT and not frame.rsv1
            whole += frame.data
        assert (whole, frame.fin) == (data, fin)
    assert next(pieces, None) is None


@pytest.mark.parametrize("begin", [b"\xff\xff", b"\x81\x05", b"\x83\x80", b"\xa1\xff", b"\x8b\x80"])
def test_what_is_no_frame_of_a_client_passes_at_once(begin: bytes) -> None:
    portions = Portions(MOST)
    before = Frame(Opcode.TEXT, noise()[:20]).serialize(mask=True)
    portions.add(before + begin[:1])
    assert portions.take() == before
    portions.add(begin[1:] + bytes(100_000))
    passed = b""
    while portions.waiting:
        passed += portions.take()
    assert passed == begin + bytes(100_000)
