"""Tool calls, assembled from the deltas that chat servers stream."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from support import speech
from support.llm_contract import DONE, event, prompt_of, serving, streamed
from support.paths import ROOT
from support.tool_calls import WEATHER, answered

from rejoinder.models.built_in import BUILT_IN
from rejoinder.models.llm.llama_cpp import open_llama
from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.llm.tool_calls import ToolCalls
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, ModelError, ToolCall, ToolLlm, Tools
from rejoinder.pipeline.interfaces import CallMessage

TEMPLATE = ROOT / "tests" / "vllm" / "hermes.jinja"
ROME = ToolCall("a", "weather", '{"city": "Rome"}')
OSLO = ToolCall("b", "weather", '{"city": "Oslo"}')

Piece = dict[str, Any]


def piece(index: int, id_: str | None = None, name: str | None = None, arguments: str | None = None) -> Piece:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id_, "type": "function", "function": function}


def assembled(pieces: Sequence[Piece], finish: str | None = "tool_calls") -> list[ToolCall]:
    calls = ToolCalls("model")
    for one in pieces:
        calls.add([ChoiceDeltaToolCall.model_validate(one)])
    calls.add([], finish)
    return calls.whole()


STREAMS = {
    "openai": [
        piece(0, "a", "weather", ""),
        piece(0, arguments='{"city": '),
        piece(0, arguments='"Rome"}'),
        piece(1, "b", "weather", ""),
        piece(1, arguments='{"city": "Oslo"}'),
    ],
    "whole at once": [
        piece(0, "a", "weather", ROME.arguments),
        piece(1, "b", "weather", OSLO.arguments),
    ],
    "all at index 0": [
        piece(0, "a", "weather", ROME.arguments),
        piece(0, "b", "weather", OSLO.arguments),
    ],
    "mixed": [
        piece(0, "a", "weather", '{"city"'),
        piece(1, "b", "weather", '{"city"'),
        piece(0, arguments=': "Rome"}'),
        piece(1, arguments=': "Oslo"}'),
    ],
    "identifier each time": [
        piece(0, "a", "weather", '{"city": '),
        piece(0, "a", None, '"Rome"}'),
        piece(1, "b", "weather", OSLO.arguments),
    ],
}


@pytest.mark.parametrize("pieces", STREAMS.values(), ids=STREAMS)
def test_calls_are_put_together(pieces: list[Piece]) -> None:
    assert assembled(pieces) == [ROME, OSLO]


def test_no_arguments_and_no_identifier() -> None:
    (call,) = assembled([piece(0, None, "stop")])
    assert (call.name, call.arguments) == ("stop", "{}") and call.id.startswith("call_")


@pytest.mark.parametrize(
    ("pieces", "finish", "reason"),
    [
        (
            [piece(0, "a", "weather", '{"city"')],
            "length",
            "limit of tokens inside a call of the tool 'weather'",
        ),
        ([piece(0, "a", None, "{}")], "stop", "needs the name of a tool"),
    ],
)
def test_incomplete_call_is_an_error(pieces: list[Piece], finish: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        assembled(pieces, finish)


@pytest.mark.parametrize("arguments", ['{"city"', '"Rome"', "[1]", "Rome"])
def test_arguments_that_are_no_object_are_for_the_tool_to_refuse(arguments: str) -> None:
    assert assembled([piece(0, "a", "weather", arguments)]) == [ToolCall("a", "weather", arguments)]


def test_text_is_streamed_before_tool_calls() -> None:
    choice = {"index": 0, "delta": {"tool_calls": STREAMS["openai"][:3]}, "finish_reason": None}
    called = {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}
    parts = [
        event("Let me "),
        event("see."),
        f"data: {json.dumps(called)}\n\n",
        event(None, "tool_calls"),
        DONE,
    ]

    async def talk() -> list[str | ToolCall]:
        async with serving(streamed(*parts)) as (_, chat):
            assert isinstance(chat, ToolLlm)
            return await answered(chat, prompt_of("Rome?"), Tools([WEATHER]))

    with asyncio.Runner(debug=True) as runner:
        assert runner.run(talk()) == ["Let me ", "see.", "", ROME]  # "": the call begins


def test_scripted_calls() -> None:
    async def talk() -> None:
        llm = ScriptedLlm(['Well. @weather {"city": "Rome"} @stop', "It is sunny."], first=0.0, each=0.0)
        assert isinstance(llm, ToolLlm)
        well, rome, stop = await answered(llm, prompt_of("Rome?"), Tools([WEATHER]))
        assert well == "Well. "
        assert isinstance(rome, ToolCall) and (rome.name, rome.arguments) == (ROME.name, ROME.arguments)
        assert isinstance(stop, ToolCall) and (stop.name, stop.arguments) == ("stop", "{}")
        assert stop.id != rome.id

    asyncio.run(talk())


def test_embedded_model_whose_template_has_no_tools_cannot_call_any() -> None:
    """llama.cpp ignores even a required call if the model's template has no tools."""
    assert not hasattr(OrtLlm, "answer")
    pytest.importorskip("xllamacpp")
    llm = speech.model("llama")
    assert not isinstance(llm, ToolLlm)
    asyncio.run(llm.aclose())


def asked_before(city: str) -> list[Message]:
    """Return a turn in which the model has called the weather."""
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    called = CallMessage(id=f"call_{city}", type="function", function=function)
    return [
        Message(role="user", content=f"The weather in {city}?"),
        Message(role="assistant", content="", tool_calls=[called]),
        Message(role="tool", content="sunny", tool_call_id=called["id"]),
        Message(role="assistant", content="It is sunny."),
    ]


@pytest.mark.weights
def test_llama_calls_tools_with_its_own_parser(tmp_path: Path) -> None:
    """The model is SmolLM2 with a template that has tools. It does what it sees that it did before."""
    pytest.importorskip("xllamacpp")
    speech.need("llama:smollm2-135m-instruct")
    given = BUILT_IN["llama"].find("smollm2-135m-instruct")
    file = tmp_path / "tools.gguf"
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata"]
    subprocess.run([*command, "--chat-template-file", str(TEMPLATE), str(given), str(file)], check=True)
    turns = [message for city in ("Paris", "Oslo", "Berlin", "Madrid") for message in asked_before(city)]

    async def talk() -> None:
        llm = open_llama(file, 2)
        try:
            assert isinstance(llm, ToolLlm)
            question = Message(role="user", content="The weather in Rome?")
            pieces = await answered(llm, [*turns, question], Tools([WEATHER]))
            call = next(one for one in pieces if isinstance(one, ToolCall))
            assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome"})
            assert not any("tool_call" in one for one in pieces if isinstance(one, str)), (
                "it speaks no markup"
            )
        finally:
            await llm.aclose()

    asyncio.run(talk())
