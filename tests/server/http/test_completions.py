"""Chat completions with openai-python over real sockets, and their parts without sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI, OpenAI
from support.servers.in_process import served_here, until
from support.serving import LINE, PATIENCE, Server, Talk, serving

from rejoinder.agent.server.http.completion import Answer
from rejoinder.agent.server.http.completion_request import MAX_BODY, Completion, read
from rejoinder.agent.server.http.sse import KEEP_ALIVE
from rejoinder.agent.server.keys import hashed
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ProtocolError, ToolCall, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS

USER = {"role": "user", "content": "hi"}
ASKED = {"model": "default", "messages": [USER]}
KEY = "rj_the_key_of_this_test"
WEATHER = {"name": "weather", "description": "Tells it.", "parameters": {"type": "object"}}
TOOL: Any = {"type": "function", "function": WEATHER}


# --- the request --------------------------------------------------------------------------------------------


def completion_of(**fields: Any) -> Completion:
    return read(json.dumps({**ASKED, **fields}).encode())


def test_messages_become_the_prompt_of_a_language_model() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "warm?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "17", "tool_call_id": "a"},
        {"role": "assistant", "content": "Seventeen.", "refusal": None, "annotations": []},
    ]
    assert completion_of(messages=messages).prompt() == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "How warm?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "17", "tool_call_id": "a"},
        {"role": "assistant", "content": "Seventeen."},
    ]


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ({}, Tools()),
        ({"tools": [TOOL]}, Tools([TOOL], "auto")),
        ({"tools": [TOOL], "tool_choice": "none"}, Tools()),
        ({"tools": [TOOL], "tool_choice": "required"}, Tools([TOOL], "required")),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
            Tools([TOOL], {"type": "function", "function": {"name": "weather"}}),
        ),
    ],
)
def test_tools_are_passed_on_as_they_are(given_: dict[str, Any], wanted: Tools) -> None:
    assert completion_of(**given_).wanted(can_call=True) == wanted


FAULTS: dict[str, tuple[Any, str | None, str]] = {
    "no JSON": (b"{", None, "invalid_json"),
    "no object": (b"7", None, "invalid_value"),
    "no UTF-8": (b"\xff", None, "invalid_json"),
    "half a character": (b'{"model": "\\ud800", "messages": []}', None, "invalid_json"),
    "nested": (b"[" * 100_000, None, "invalid_json"),
    "no messages": ({"messages": []}, "messages", "invalid_value"),
    "no model": (b'{"messages": [{"role": "user", "content": "hi"}]}', "model", "missing_required_parameter"),
    "no role": ({"messages": [{"content": "hi"}]}, "messages.0.role", "missing_required_parameter"),
    "no content": ({"messages": [{"role": "user"}]}, "messages.0.content", "missing_required_parameter"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages.0.content.0.type",
        "unsupported_content",
    ),
    "two answers": ({"n": 2}, "n", "unsupported_parameter"),
    "JSON wanted": ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
    "speech wanted": ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
    "a word for a stream": ({"stream": "yes"}, "stream", "invalid_value"),
    "no tokens": ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    "an empty stop": ({"stop": ""}, "stop", "invalid_value"),
    "five stops": ({"stop": list("abcde")}, "stop", "invalid_value"),
    "no name": ({"tools": [{"type": "function", "function": {}}]}, None, "missing_required_parameter"),
    "another choice": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}},
        "tool_choice",
        "invalid_value",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_error_names_what_is_wrong_with_a_request(name: str) -> None:
    body, param, code = FAULTS[name]
    with pytest.raises(ProtocolError) as error:
        one = read(body) if isinstance(body, bytes) else completion_of(**body)
        one.stops()
        one.wanted(can_call=True)
    assert error.value.code == code and str(error.value)
    if param:
        assert (error.value.param or "").startswith(param)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["messages", "tools", "tool_choice", "stop", "stream", "n", "max_tokens", "response_format"]
ALMOST = st.tuples(st.sampled_from(FIELDS), JSON).map(
    lambda one: json.dumps({**ASKED, one[0]: one[1]}).encode()
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={"content": JSON, "tool_calls": JSON, "tool_call_id": JSON},
)
TALKS = st.lists(MESSAGE, max_size=3).map(lambda said: json.dumps({**ASKED, "messages": said}).encode())


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | ALMOST | TALKS)
def test_any_body_is_a_request_or_the_protocols_error(body: bytes) -> None:
    try:
        one = read(body)
        prompt, stops, wanted = one.prompt(), one.stops(), one.wanted(can_call=True)
    except ProtocolError as error:
        assert str(error) and error.code
        return
    assert prompt and all(isinstance(message["content"], str) for message in prompt)
    assert all(stops) and isinstance(wanted, Tools)


# --- the answer ---------------------------------------------------------------------------------------------


def written(
    pieces: list[str], most: int | None = None, stops: list[str] | None = None
) -> tuple[str, str | None]:
    answer, got = Answer(most, stops or []), ""
    for piece in pieces:
        got += answer.take(piece)
        if answer.finish:
            break
    got += answer.end()
    assert answer.text == got
    return got, answer.finish


@pytest.mark.parametrize(
    ("most", "stops", "text", "finish"),
    [
        (None, [], "one two three", "stop"),
        (2, [], "one two", "length"),
        (3, [], "one two three", "length"),
        (None, ["wo t"], "one t", "stop"),
        (None, ["three", "one two"], "", "stop"),
        (None, ["three x"], "one two three", "stop"),  # held back as long as it may become one
        (1, [" two"], "one", "length"),
    ],
)
def test_answer_ends_at_stops_and_limits(most: int | None, stops: list[str], text: str, finish: str) -> None:
    assert written(["one", " two", " three"], most, stops) == (text, finish)


@given(
    st.lists(st.text("ab ", max_size=4), max_size=8),
    st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3),
)
def test_stops_are_found_at_any_split_of_the_text(pieces: list[str], stops: list[str]) -> None:
    text, finish = written(pieces, stops=stops)
    whole = "".join(pieces)
    assert whole.startswith(text) and finish == "stop"
    assert not [stop for stop in stops if stop in text]
    assert (text == whole) == (not [stop for stop in stops if stop in whole])


def test_answer_at_the_models_limit_finishes_with_length() -> None:
    assert written(["x"] * MAX_TOKENS)[1] == "length"
    answer = Answer()
    assert answer.take("Let me see.") and not answer.take(ToolCall("a", "weather", "{}"))
    answer.end()
    assert answer.finish == "tool_calls"


# --- over a socket ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("completions"), llm=f"scripted:llm|{LINE}") as server:
        yield server


def client(server: Server, **options: Any) -> OpenAI:
    return OpenAI(**{"api_key": "none", "base_url": f"{server.http}/v1", "max_retries": 0, **options})


def test_openai_python_gets_an_answer(server: Server) -> None:
    with client(server) as one:
        assert [model.id for model in one.models.list()] == ["default"]
        assert one.models.retrieve("default").object == "model"
        done = one.chat.completions.create(model="default", messages=[USER], temperature=0.2)
        choice = done.choices[0]
        assert (choice.message.content or "").strip() == LINE.strip()
        assert (done.object, done.model, choice.finish_reason) == ("chat.completion", "default", "stop")
        usage = done.usage
        assert usage is not None and usage.completion_tokens == len(LINE.split())
        short = one.chat.completions.create(model="x", messages=[USER], max_tokens=2, stop=["nothing"])
        assert short.choices[0].message.content == "This is " and short.choices[0].finish_reason == "length"


def test_usage_comes_from_the_chat_server_behind(server: Server, tmp_path: Path) -> None:
    with (
        serving(tmp_path, llm=f"openai:{server.http}/v1#default") as front,
        client(front) as one,
        Talk(front) as talk,
    ):
        usage = one.chat.completions.create(model="default", messages=[USER]).usage
        assert usage is not None and usage.completion_tokens == len(LINE.split())
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        with one.chat.completions.create(
            model="default", messages=[USER], stream=True, stream_options={"include_usage": True}
        ) as stream:
            *_, last = stream
        assert last.usage == usage
        assert talk.turn()["usage"]["output_tokens"] == len(LINE.split())


def test_openai_python_gets_a_stream(server: Server) -> None:
    with client(server) as one:
        with one.chat.completions.create(
            model="default",
            messages=[USER],
            stream=True,
            stream_options={"include_usage": True},
            stop="sentence",
        ) as stream:
            *chunks, cost = stream
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "This is a "
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert cost.usage is not None and cost.usage.total_tokens == cost.usage.prompt_tokens + 4
    assert len({chunk.id for chunk in chunks}) == 1 and len(chunks) > 3, "it comes in pieces"


def post(server: Server, body: bytes, **headers: str) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def test_stream_on_the_wire(server: Server) -> None:
    status, headers, text = post(server, json.dumps({**ASKED, "stream": True}).encode())
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    *events, done, rest = text.split("\n\n")
    assert done == "data: [DONE]" and not rest and all(event.startswith("data: {") for event in events)


def test_errors_have_openais_shape_and_status(server: Server) -> None:
    for body, status, code in (
        (b"{", 400, "invalid_json"),
        (json.dumps({**ASKED, "tools": 5}).encode(), 400, "invalid_value"),
        (b" " * (MAX_BODY + 1), 413, "request_too_large"),
    ):
        got, _, text = post(server, body)
        error = json.loads(text)["error"]
        assert (got, error["code"], error["type"]) == (status, code, "invalid_request_error")
        assert set(error) == {"message", "type", "param", "code"}
    with client(server) as one, pytest.raises(openai.NotFoundError):
        one.models.retrieve("gpt-4o")
    assert post(server, json.dumps(ASKED).encode(), Origin="http://evil.example")[0] == 403
    assert post(server, json.dumps(ASKED).encode(), Host="evil.example")[0] == 403, "led here by its name"
    assert post(server, json.dumps(ASKED).encode(), Host=f"localhost:{server.port}")[0] == 200


def test_key_is_needed_where_calls_need_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    with serving(tmp_path) as server:
        with client(server) as one, pytest.raises(openai.AuthenticationError) as refused:
            one.chat.completions.create(**ASKED)
        assert refused.value.code == "invalid_api_key"
        with client(server, api_key=KEY) as one:
            assert one.chat.completions.create(**ASKED).choices[0].finish_reason == "stop"
            # Where a key is needed, any host name is allowed: there may be a proxy in front.
            assert (
                one.models.with_raw_response.list(extra_headers={"Host": "agent.example"}).status_code == 200
            )


def test_shutdown_ends_a_stream_with_an_error(tmp_path: Path) -> None:
    with serving(tmp_path, llm=f"scripted:llm|{LINE * 200}") as server, client(server) as one:
        with one.chat.completions.create(**ASKED, stream=True) as stream:
            assert next(iter(stream))
            server.process.terminate()
            with pytest.raises(openai.APIError, match="shutting down"):
                for _ in stream:
                    pass


# --- in this process, where the model's own account can be read ---------------------------------------------


@asynccontextmanager
async def answering(llm: ScriptedLlm) -> AsyncIterator[tuple[Any, AsyncOpenAI]]:
    async with served_here() as (program, port):
        program.models = replace(program.models, llm=llm)
        url = f"http://127.0.0.1:{port}/v1"
        async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as one, asyncio.timeout(PATIENCE):
            yield program, one


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_leaves_stops_the_model(stream: bool) -> None:
    llm = ScriptedLlm([LINE * 500])

    async def leave() -> None:
        async with answering(llm) as (program, one):
            asking = asyncio.create_task(one.chat.completions.create(**ASKED, stream=stream))
            await until(lambda: llm.open == 1)
            if stream:
                answer = await asking
                await anext(aiter(answer))
                await answer.close()
            else:
                asking.cancel()
            await until(lambda: llm.open == 0)
            await until(lambda: not program.completions._running)

    asyncio.run(leave())


def test_no_more_text_requests_than_are_allowed_at_a_time() -> None:
    llm = ScriptedLlm([LINE * 500])

    async def ask() -> None:
        async with answering(llm) as (_, one):
            streams = [await one.chat.completions.create(**ASKED, stream=True) for _ in range(2)]
            with pytest.raises(openai.RateLimitError) as busy:
                await one.chat.completions.create(**ASKED)
            assert busy.value.response.headers["retry-after"] == "1"
            assert busy.value.code == "rate_limit_exceeded" and llm.open == 2
            await streams[0].close()
            await until(lambda: llm.open == 1)
            await (await one.chat.completions.create(**ASKED, stream=True)).close()
            await streams[1].close()
            await until(lambda: llm.open == 0)

    asyncio.run(ask())


@pytest.mark.parametrize("after", [0, 3])
def test_model_failure_becomes_an_error(after: int) -> None:
    llm = ScriptedLlm([LINE], fail_after=after)

    async def ask() -> None:
        async with answering(llm) as (_, one):
            with pytest.raises(openai.InternalServerError, match="The language model failed"):
                await one.chat.completions.create(**ASKED)
            got = []
            with pytest.raises(openai.APIError, match="The language model failed") as failed:
                async for chunk in await one.chat.completions.create(**ASKED, stream=True):
                    got.append(chunk)
            assert isinstance(failed.value, openai.InternalServerError) == (after == 0)
            assert bool(got) == (after > 0)

    asyncio.run(ask())


def test_while_a_model_is_silent_the_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rejoinder.agent.server.http.completions.KEEP_ALIVE_SECONDS", 0.05)

    async def ask() -> None:
        async with answering(ScriptedLlm(["One."], first=0.4)) as (_, one):
            raw = one.chat.completions.with_raw_response
            text = (await raw.create(**ASKED, stream=True)).http_response
            lines = "".join([piece async for piece in text.aiter_text()])
            assert lines.startswith(KEEP_ALIVE) and "[DONE]" in lines
            answer = [chunk async for chunk in await one.chat.completions.create(**ASKED, stream=True)]
            assert answer[1].choices[0].delta.content == "One. ", "clients pass over comments"

    asyncio.run(ask())


def test_tools_are_called_where_the_model_can() -> None:
    llm = ScriptedLlm(['Let me see. @weather {"city": "Rome"} @weather {"city": "Oslo"}'])

    async def ask() -> None:
        async with answering(llm) as (_, one):
            done = (await one.chat.completions.create(**ASKED, tools=[TOOL])).choices[0]
            assert done.finish_reason == "tool_calls" and done.message.content == "Let me see. "
            names = [(call.function.name, call.function.arguments) for call in done.message.tool_calls or []]
            assert names == [("weather", '{"city": "Rome"}'), ("weather", '{"city": "Oslo"}')]
            calls = []
            async for chunk in await one.chat.completions.create(**ASKED, tools=[TOOL], stream=True):
                calls += chunk.choices[0].delta.tool_calls or []
                finish = chunk.choices[0].finish_reason
            assert [(call.index, call.function.arguments) for call in calls if call.function] == [
                (0, '{"city": "Rome"}'),
                (1, '{"city": "Oslo"}'),
            ]
            assert finish == "tool_calls" and len({call.id for call in calls}) == 2

    asyncio.run(ask())


# --- on real weights ----------------------------------------------------------------------------------------


@pytest.mark.weights
def test_text_and_voice_share_the_embedded_model(tmp_path: Path) -> None:
    with (
        serving(tmp_path, llm="ort:smollm2-135m-instruct") as server,
        client(server) as one,
        Talk(server) as talk,
    ):
        fields: Any = {
            "model": "default",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
        }
        with one.chat.completions.create(**fields, stream=True) as stream:
            first = next(chunk for chunk in stream if chunk.choices[0].delta.content)
            assert talk.turn()["status"] == "completed", "a caller calls meanwhile"
            rest = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "Paris" in (first.choices[0].delta.content or "") + rest
        done = one.chat.completions.create(**fields, max_tokens=3)
        usage = done.usage
        assert usage is not None and usage.completion_tokens == 3 and usage.prompt_tokens > 10
        with one.chat.completions.create(
            **fields, max_tokens=3, stream=True, stream_options={"include_usage": True}
        ) as stream:
            *_, last = stream
        assert last.usage == usage and last.choices == []
        with pytest.raises(openai.BadRequestError, match="cannot call tools"):
            one.chat.completions.create(**fields, tools=[TOOL])
