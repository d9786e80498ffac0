"""Tool calls, assembled from the deltas that chat servers stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from support.llm_contract import DONE, event, prompt_of, serving, streamed
from support.tool_calls import WEATHER, answered

from rejoinder.models.llm.llama_cpp import LlamaCpp
from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.llm.tool_calls import ToolCalls
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ModelError, ToolCall, ToolLlm, Tools

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
        ([piece(0, "a", "weather", '{"city"')], "length", "longer than an answer"),
        ([piece(0, "a", "weather", '{"city"')], "stop", "no JSON"),
        ([piece(0, "a", "weather", '"Rome"')], "stop", "no call"),
        ([piece(0, "a", None, "{}")], "stop", "no call"),
    ],
)
def test_incomplete_call_is_an_error(pieces: list[Piece], finish: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        assembled(pieces, finish)


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
        assert runner.run(talk()) == ["Let me ", "see.", "", ROME], "the empty text is a sign of life"


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


@pytest.mark.parametrize("kind", [OrtLlm, LlamaCpp])
def test_embedded_models_have_no_tool_calls(kind: type[Any]) -> None:
    """llama.cpp ignores even a required call if the model's template has no tools."""
    assert not hasattr(kind, "answer")
