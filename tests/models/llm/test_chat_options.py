"""What a table of the configuration changes in requests to a chat server, and what is read of its answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from support.llm_contract import DONE, Handler, event, plain, streamed

from rejoinder.models.llm.openai import OPEN_THOUGHT, ChatOptions, OpenAiChat
from rejoinder.pipeline import Message, ModelError, Tools, Trace, Usage
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered
from rejoinder.pipeline.upstream import Upstream, upstream

ASKED = [Message(role="user", content="When?")]
BEGUN = [*ASKED, Message(role="assistant", content="The first")]
USAGE = 'data: {"id": "1", "choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 20}}\n\n'
WHOLE = (event("Hel"), event("lo"), event(None, "stop"), USAGE, DONE)


class Recorder:
    """A chat server that gives each request to the next handler, and keeps heads and bodies."""

    def __init__(self, *handlers: Handler) -> None:
        self.handlers = list(handlers)
        self.heads: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(int(length[1]) if length else 0)))
        try:
            await self.handlers[min(len(self.bodies), len(self.handlers)) - 1](reader, writer)
        finally:
            writer.close()


def talk(
    recorder: Recorder,
    messages: Sequence[Message] = ASKED,
    options: ChatOptions | None = None,
    times: int = 1,
    tools: Tools | None = None,
    raw: bool = False,
) -> tuple[list[Any], Upstream]:
    """Return the pieces of the last answer, and what was reported of it."""

    async def main() -> tuple[list[Any], Upstream]:
        listener = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
        url = "http://{}:{}/v1".format(*listener.sockets[0].getsockname())
        chat = OpenAiChat(url, "m", options=options)
        reply = Upstream(Trace(1), spoken=True)
        upstream.set(reply)
        try:
            for _ in range(times):
                stream = chat.answer(messages, tools) if tools else chat.reply(messages)
                pieces = [piece async for piece in (stream if raw else filtered(stream, AnswerFilter()))]  # type: ignore[type-var]
            return pieces, reply
        finally:
            await chat.aclose()
            listener.close()
            await listener.wait_closed()
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0)  # the server's handlers end when their client is gone

    return asyncio.run(main())


def test_usage_and_its_price_are_read_from_the_server() -> None:
    recorder = Recorder(streamed(*WHOLE))
    pieces, reply = talk(recorder, options=ChatOptions(input_price=2.0, output_price=10.0), times=2)
    assert pieces == ["Hel", "lo"]
    assert reply.usage == Usage(1800, 40), "of all requests of a reply"
    assert reply._trace.counts["cost"] == pytest.approx(2 * (900 * 2.0 + 20 * 10.0) / 1e6)
    assert recorder.bodies[0]["stream_options"] == {"include_usage": True}


def test_cached_tokens_have_a_price_of_their_own() -> None:
    usage = '"usage": {"prompt_tokens": 900, "completion_tokens": 20, "prompt_tokens_details": %s}'
    prices = ChatOptions(input_price=2.0, output_price=10.0, cached_price=0.5)
    for details, cached in (('{"cached_tokens": 800}', 800), ("null", 0), ('{"cached_tokens": 9999}', 900)):
        last = f'data: {{"id": "1", "choices": [], {usage % details}}}\n\n'
        _, reply = talk(Recorder(streamed(event("Hello", "stop"), last, DONE)), options=prices)
        assert reply.usage == Usage(900, 20, cached)
        counts = reply._trace.counts
        assert counts["cost"] == pytest.approx(((900 - cached) * 2.0 + cached * 0.5 + 20 * 10.0) / 1e6)
        assert (counts["tokens_read"], counts["tokens_written"], counts["tokens_cached"]) == (900, 20, cached)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            "422 No",
            '{"detail": [{"loc": ["body", "stream_options", "include_usage"], "msg": "Extra inputs"}]}',
        ),
        ("400 No", '{"error": {"message": "Extra inputs are not permitted, field: \'stream_options\'"}}'),
    ],
    ids=["Mistral", "Fireworks"],
)
def test_a_server_that_does_not_know_the_field_is_asked_without(status: str, words: str) -> None:
    refusal = plain(status, "application/json", words)
    recorder = Recorder(refusal, streamed(event("Yes", "stop"), DONE))
    pieces, reply = talk(recorder, times=2)
    assert pieces == ["Yes"] and reply.usage is None
    assert ["stream_options" in body for body in recorder.bodies] == [True, False, False], "it is remembered"


def test_another_refusal_is_an_error() -> None:
    with pytest.raises(ModelError, match="no such thing"):
        talk(Recorder(plain("422 No", "application/json", '{"error": {"message": "no such thing"}}')))


@pytest.mark.parametrize(
    ("prefill", "fields", "marks"),
    [
        ("no", {}, {}),
        ("last", {}, {}),
        ("vllm", {"add_generation_prompt": False, "continue_final_message": True}, {}),
        ("prefix", {}, {"prefix": True}),
    ],
)
def test_a_begun_answer_is_continued_as_the_server_does_it(
    prefill: str, fields: dict[str, Any], marks: dict[str, Any]
) -> None:
    recorder = Recorder(streamed(*WHOLE))
    for messages in (BEGUN, ASKED):
        talk(recorder, messages, ChatOptions(prefill=prefill))
    begun, asked = recorder.bodies
    assert begun["messages"][-1] == {**BEGUN[-1], **marks}
    assert {name: begun[name] for name in fields} == fields
    assert not fields.keys() & asked.keys() and asked["messages"] == ASKED


def test_headers_are_sent() -> None:
    recorder = Recorder(streamed(*WHOLE))
    talk(recorder, options=ChatOptions(headers={"X-Team": "blue"}))
    assert "x-team: blue" in recorder.heads[0].lower()


THOUGHTS = [
    'data: {"id": "1", "choices": [{"delta": {"%s": "They greet."}}]}\n\n' % name  # noqa: UP031
    for name in ("reasoning_content", "reasoning", "thinking")
]


@pytest.mark.parametrize("thought", THOUGHTS)
def test_fields_with_thoughts_are_not_words(thought: str) -> None:
    assert talk(Recorder(streamed(thought, *WHOLE)))[0] == ["Hel", "lo"]


def test_an_answer_that_begins_inside_a_thought() -> None:
    recorder = Recorder(streamed(event("They gr"), event("eet.</th"), event("ink>Hello."), *WHOLE[2:]))
    options = ChatOptions(thinks=True)
    assert "".join(talk(recorder, options=options)[0]) == "Hello."
    assert talk(recorder, options=options, raw=True)[0][0] == OPEN_THOUGHT


TOOLS = Tools([{"type": "function", "function": {"name": "book"}}])


def delta(function: dict[str, str]) -> str:
    call = {"index": 0, "id": "1", "type": "function", "function": function}
    return f"data: {json.dumps({'id': '1', 'choices': [{'delta': {'tool_calls': [call]}}]})}\n\n"


def test_a_tool_call_that_never_ends_is_given_up() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await streamed(delta({"name": "book", "arguments": ""}), end=False)(reader, writer)
        more = delta({"arguments": " "})
        with suppress(ConnectionError):
            while True:
                writer.write(b"%x\r\n%s\r\n" % (len(more), more.encode()))
                await writer.drain()
                await asyncio.sleep(0.01)

    with pytest.raises(ModelError, match=r"a tool call takes longer than 0\.2 s") as failed:
        talk(Recorder(endless), options=ChatOptions(call_s=0.2), tools=TOOLS)
    assert failed.value.code == "model_timeout"


def test_the_beginning_of_a_tool_call_is_a_sign_of_life() -> None:
    parts = [delta({"name": "book", "arguments": '{"a": '}), delta({"arguments": "1}"})]
    recorder = Recorder(streamed(*parts, event(None, "tool_calls"), DONE))
    sign, call = talk(recorder, tools=TOOLS, raw=True)[0]
    assert sign == "" and (call.name, call.arguments) == ("book", '{"a": 1}')


def test_a_thought_keeps_the_first_deadline_but_a_silence_does_not() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await streamed(THOUGHTS[0], end=False)(reader, writer)
        await reader.read()

    with pytest.raises(ModelError, match=r"no token for 0\.1 s"):
        talk(Recorder(slow), options=ChatOptions(first_s=20.0, between_s=0.1))
