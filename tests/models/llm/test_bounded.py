"""Chat servers that send too much: the reply fails, and memory does not grow."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from support.llm_contract import DONE, answer, event, plain, prompt_of, serving

from rejoinder.models.llm import tool_calls
from rejoinder.models.llm.bounded import MAX_LINE_BYTES, Measure, TooLong
from rejoinder.models.llm.openai import EMPTY_CHUNKS, REQUESTED_TOKENS
from rejoinder.models.llm.tool_calls import ToolCalls
from rejoinder.pipeline import ModelError

BLOCK = 64 * 1024
MOST = 64 * 2**20
"""Bytes that a server sends if the client does not hang up."""
HEAD = "HTTP/1.1 {}\r\nContent-Type: {}\r\n{}Connection: close\r\n\r\n"


class Flood:
    """Sends a head, and then repeats a block until the client hangs up. sent: bytes sent in blocks."""

    def __init__(self, head: str, begin: bytes, block: bytes) -> None:
        self._begin = head.encode() + begin
        self._block = block
        self.sent = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._begin)
        try:
            while self.sent < MOST:
                writer.write(self._block)
                self.sent += len(self._block)
                await writer.drain()
        except ConnectionError:
            pass


STREAM = HEAD.format("200 OK", "text/event-stream", "")
LONG = json.dumps({"choices": [{"delta": {"content": "@"}}]}).partition("@")[0].encode()
FLOODS = {
    "one line": (STREAM, b"data: " + LONG, b"x" * BLOCK, "one event has more than 1 MiB"),
    "one event": (STREAM, b"", b"data: x\n" * (BLOCK // 8), "one event has more than 1 MiB"),
    "one comment": (STREAM, b": ", b"x" * BLOCK, "one event has more than 1 MiB"),
    "an error": (HEAD.format("500 Oops", "text/html", ""), b"", b"<p>\n\n" * 13_000, "more than 1 MiB"),
    "an error that may be tried again": (
        HEAD.format("429 No", "a/b", ""),
        b"",
        b"{" * BLOCK,
        "more than 1 MiB",
    ),
}


@pytest.mark.parametrize(("head", "begin", "block", "reason"), FLOODS.values(), ids=FLOODS)
def test_event_and_response_size_is_limited(head: str, begin: bytes, block: bytes, reason: str) -> None:
    flood = Flood(head, begin, block)

    async def talk() -> int:
        async with serving(flood) as (_, chat):
            tracemalloc.start()
            try:
                with pytest.raises(ModelError, match=rf"#toy: .*{reason}"):
                    await answer(chat, prompt_of("Hello?"))
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert asyncio.run(talk()) < 8 * MAX_LINE_BYTES, "what is held at once, the server's end of it included"
    assert flood.sent < 16 * MAX_LINE_BYTES, "the client hung up"


def test_compressed_response_is_refused() -> None:
    head = HEAD.format("200 OK", "text/event-stream", "Content-Encoding: gzip\r\n")
    packed = Flood(head, b"", gzip.compress(b"data: " + b"x" * BLOCK))

    async def talk() -> None:
        async with serving(packed) as (_, chat):
            assert chat._client.default_headers["Accept-Encoding"] == "identity"
            with pytest.raises(ModelError, match=r"#toy: .*the response is compressed"):
                await answer(chat, prompt_of("Hello?"))

    asyncio.run(talk())


def test_many_small_events_stay_within_the_limit() -> None:
    words = [event("word " * 2_000) for _ in range(200)]
    text = "".join([*words, event(None, "stop"), DONE])
    assert len(text) > MAX_LINE_BYTES
    assert whole(plain("200 OK", "text/event-stream", text)) == "word " * 400_000
    assert whole(plain("200 OK", "text/event-stream", text.replace("\n", "\r\n"))) == "word " * 400_000


@pytest.mark.parametrize("chunk", ['{"choices": []}', '{"choices": [{"delta": {"reasoning": "hm"}}]}'])
def test_endless_stream_is_refused(chunk: str) -> None:
    text = f"data: {chunk}\n\n" * (REQUESTED_TOKENS + EMPTY_CHUNKS + 1)
    with pytest.raises(ModelError, match=f"#toy: it sent more than {REQUESTED_TOKENS} tokens"):
        whole(plain("200 OK", "text/event-stream", text))


def whole(handler: Callable[[Any, Any], Awaitable[None]]) -> str:
    async def talk() -> str:
        async with serving(handler) as (_, chat):
            return "".join(await answer(chat, prompt_of("Hello?")))

    return asyncio.run(talk())


@given(st.lists(st.sampled_from([b"data: a", b"\n", b"\r\n", b"\r", b"\n\n", b":"]), max_size=30), st.data())
def test_an_event_ends_with_a_blank_line_wherever_the_bytes_are_cut(parts: list[bytes], data: Any) -> None:
    text = b"".join(parts)
    measure, sizes = Measure(events=True), Measure(events=True)
    sizes.take(text)
    while text:
        size = data.draw(st.integers(1, len(text)))
        measure.take(text[:size])
        text = text[size:]
    assert measure._size == sizes._size


def test_a_whole_response_is_measured_as_one() -> None:
    measure = Measure(events=False)
    measure.take(b"\n\n" * (MAX_LINE_BYTES // 2))
    with pytest.raises(TooLong):
        measure.take(b"x")


def called(index: int, arguments: str, id_: str = "") -> ChoiceDeltaToolCall:
    function = {"name": "weather", "arguments": arguments}
    return ChoiceDeltaToolCall.model_validate({"index": index, "id": id_ or None, "function": function})


def test_tool_call_size_is_limited() -> None:
    calls = ToolCalls("model")
    calls.add(called(0, "x" * 20, "the same each time") for _ in range(3_000))
    for piece in (called(0, "x" * tool_calls.MAX_CALL_CHARACTERS), called(1, "x" * 10_000)):
        with pytest.raises(ModelError, match=r"^model: it calls too much in one answer"):
            calls.add([piece])
    many = ToolCalls("model")
    many.add(called(number, "{}", str(number)) for number in range(tool_calls.MAX_CALLS))
    assert len(many.whole()) == tool_calls.MAX_CALLS
    with pytest.raises(ModelError, match=r"^model: it calls too much in one answer"):
        many.add([called(tool_calls.MAX_CALLS, "{}")])
