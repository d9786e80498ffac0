"""Tool calls of a model in vLLM's real engine, in the format of many larger models."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from support.llm_contract import answer, prompt_of
from support.paths import ROOT
from support.serving import Talk, serving
from support.tool_calls import CITY, WEATHER, answered
from support.vllm_engine import (
    GREEDY,
    GUESS,
    MODEL,
    SMALL,
    Engine,
    pytestmark,  # noqa: F401
)

from rejoinder.models.llm.vllm import tools as vllm_tools
from rejoinder.models.llm.vllm.settings import VllmSettings
from rejoinder.models.llm.vllm.tools import ToolVllm, open_vllm
from rejoinder.pipeline import Message, ModelError, ToolCall, ToolLlm, Tools

TEMPLATE = ROOT / "tests" / "vllm" / "hermes.jinja"
LEVEL = {"type": "integer", "minimum": 1, "maximum": 9}
LAMP = {
    "type": "function",
    "function": {
        "name": "set_lamp",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string", "enum": ["kitchen", "hall"]}, "level": LEVEL},
            "required": ["room", "level"],
            "additionalProperties": False,
        },
    },
}
BOTH = [WEATHER, LAMP]
QUESTION = prompt_of("What is the weather in Rome?")
CALLED = [
    *QUESTION,
    Message(
        role="assistant",
        content="",
        tool_calls=[{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    ),
    Message(role="tool", content="sunny", tool_call_id="a"),
]


def call(city: str) -> str:
    return rf'<tool_call>\n\{{"name": "weather", "arguments": \{{"city": "{city}"\}}\}}\n</tool_call>'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights, with a chat template that has tools; their own template has none."""
    made = tmp_path_factory.mktemp("weights") / "smollm2-tools"
    made.mkdir()
    for file in MODEL.iterdir():
        (made / file.name).symlink_to(file)
    (made / "chat_template.jinja").unlink()
    shutil.copy(TEMPLATE, made / "chat_template.jinja")
    (made / "generation_config.json").unlink()
    (made / "generation_config.json").write_text('{"eos_token_id": 2, "temperature": 0.0}')
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with asyncio.Runner(debug=True) as runner:
        model = open_vllm(str(folder), 1, VllmSettings(**SMALL), GREEDY)
        yield Engine(runner.run, model)
        runner.run(model.aclose())


@pytest.fixture
def model(engine: Engine) -> ToolVllm:
    assert isinstance(engine.model, ToolVllm) and isinstance(engine.model, ToolLlm)
    return engine.model


def parted(pieces: Sequence[str | ToolCall]) -> tuple[list[str], list[ToolCall]]:
    words = [piece for piece in pieces if isinstance(piece, str)]
    calls = [piece for piece in pieces if isinstance(piece, ToolCall)]
    assert [*words, *calls] == list(pieces), "the calls come behind the words"
    return words, calls


def writes(model: ToolVllm, regex: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Force the model to write this text, which a larger model would write by itself."""
    from vllm.sampling_params import StructuredOutputsParams

    monkeypatch.setitem(model._sampling, "structured_outputs", StructuredOutputsParams(regex=regex))


@pytest.mark.parametrize(
    ("regex", "said", "cities"),
    [
        (call("Rome"), "", ["Rome"]),
        (r"Let me see, one moment\.\n" + call("(Rome|Oslo)"), "Let me see, one moment.", ["Rome|Oslo"]),
        (rf"Two of them\. {call('Rome')}\n{call('Oslo')}", "Two of them.", ["Rome", "Oslo"]),
        (r"2 < 3, <tool_box> and <tool_cal\.", "2 < 3, <tool_box> and <tool_cal.", []),
    ],
    ids=["call", "words and a call", "two calls", "no call"],
)
def test_text_is_streamed_before_calls(
    engine: Engine,
    model: ToolVllm,
    monkeypatch: pytest.MonkeyPatch,
    regex: str,
    said: str,
    cities: list[str],
) -> None:
    writes(model, regex, monkeypatch)
    words, calls = parted(engine.run(answered(model, QUESTION, Tools([WEATHER]))))
    assert "".join(words).strip() == said and (len(words) > 1 or not said), "not in one piece"
    assert [one.name for one in calls] == ["weather"] * len(cities)
    for one, city in zip(calls, cities, strict=True):
        assert re.fullmatch(city, json.loads(one.arguments)["city"])
    assert len({one.id for one in calls}) == len(calls) and all(one.id for one in calls)


def test_words_in_front_of_a_call_do_not_wait_for_it(
    engine: Engine, model: ToolVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes(model, r"Let me see\. " + call("[a-z]{200}"), monkeypatch)

    async def first() -> tuple[str | ToolCall, float]:
        await engine.until_idle()
        before = engine.meter("generation_tokens")
        async with aclosing(model.answer(QUESTION, Tools([WEATHER]))) as pieces:
            piece = await anext(pieces)
            return piece, engine.meter("generation_tokens") - before

    piece, written = engine.run(first())
    assert isinstance(piece, str) and "Let me see. ".startswith(piece) and written < 10
    engine.run(engine.until_idle())


def test_a_call_that_may_not_be_made_is_not_spoken(
    engine: Engine, model: ToolVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes(model, r"It is sunny\. " + call("Rome"), monkeypatch)
    assert "".join(engine.run(answer(model, CALLED))).strip() == "It is sunny."


@pytest.mark.parametrize(
    ("regex", "most", "reason"),
    [
        (call("[a-z]{200}"), 32, "limit of tokens inside a call of the tool 'weather'"),
        (
            r'Well\. <tool_call>\n\{"name": "[a-z]{200}"\}',
            20,
            "begins a tool call that is incomplete or invalid",
        ),
        ("<tool_call>\nno JSON\n</tool_call>", 400, "begins a tool call that is incomplete or invalid"),
    ],
    ids=["cut", "cut in the name", "no name"],
)
def test_a_call_that_cannot_be_made_is_an_error(
    engine: Engine, model: ToolVllm, monkeypatch: pytest.MonkeyPatch, regex: str, most: int, reason: str
) -> None:
    writes(model, regex, monkeypatch)
    monkeypatch.setattr(vllm_tools, "MAX_TOKENS", most)
    with pytest.raises(ModelError, match=f"^vllm:smollm2-tools: .*{reason}"):
        engine.run(answered(model, QUESTION, Tools([WEATHER])))


def test_arguments_that_are_not_json_stay_as_they_are(
    engine: Engine, model: ToolVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes(model, call('"[a-z]{4}'), monkeypatch)
    _, (made,) = parted(engine.run(answered(model, QUESTION, Tools([WEATHER]))))
    assert made.name == "weather"
    with pytest.raises(json.JSONDecodeError):
        json.loads(made.arguments)


def test_a_required_call_is_made_by_its_schema(engine: Engine, model: ToolVllm) -> None:
    named = {"type": "function", "function": {"name": "set_lamp"}}
    for choice in ("required", named):
        tools = Tools(BOTH, choice, parallel=False)
        words, (made,) = parted(engine.run(answered(model, QUESTION, tools)))
        given = json.loads(made.arguments)
        assert not "".join(words).strip()
        if choice is named:
            assert made.name == "set_lamp" and given["room"] in ("kitchen", "hall")
            assert 1 <= given["level"] <= 9 and len(given) == 2
        else:
            assert made.name in ("set_lamp", "weather") and given


def test_a_tool_without_parameters_is_called_with_none(engine: Engine, model: ToolVllm) -> None:
    stop = {"type": "function", "function": {"name": "stop"}}
    tools = Tools([stop], "required", parallel=False)
    _, (made,) = parted(engine.run(answered(model, QUESTION, tools)))
    assert (made.name, json.loads(made.arguments)) == ("stop", {})


def test_invalid_schema_does_not_constrain_arguments(engine: Engine, model: ToolVllm) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": {"type": "nonsense"}}}
    tools = Tools([odd, LAMP], {"type": "function", "function": {"name": "odd"}})
    _, (made,) = parted(engine.run(answered(model, QUESTION, tools)))
    assert made.name == "odd" and isinstance(json.loads(made.arguments), dict)


def test_invalid_tool_is_refused(engine: Engine, model: ToolVllm) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": True}}
    with pytest.raises(ModelError, match=r"^vllm:smollm2-tools: cannot use these tools: .*parameters"):
        engine.run(answered(model, QUESTION, Tools([odd])))


def test_a_reply_that_is_cut_in_its_call_leaves_nothing(engine: Engine, model: ToolVllm) -> None:
    story = {
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 900}},
        "required": ["text"],
    }
    tell = {"type": "function", "function": {"name": "tell", "parameters": story}}

    async def cut() -> float:
        for tokens in (1, 4, 12):
            await engine.until_idle()
            before = engine.meter("generation_tokens")
            task = asyncio.create_task(answered(model, QUESTION, Tools([tell], "required")))
            while engine.meter("generation_tokens") < before + tokens:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await engine.until_idle()
        written = engine.meter("generation_tokens")
        await asyncio.sleep(0.3)
        return engine.meter("generation_tokens") - written

    assert engine.run(cut()) == 0


def test_the_prompt_has_the_tools_and_what_they_returned(model: ToolVllm) -> None:
    function = {"name": "weather", "arguments": '{"city": "Rome <|im_end|>"}'}
    odd = {"name": "weather", "arguments": "Rome"}
    messages = [
        *QUESTION,
        Message(
            role="assistant",
            content="Well.",
            tool_calls=[
                {"id": "a", "type": "function", "function": function},
                {"id": "b", "type": "function", "function": odd},
            ],
        ),
        Message(role="tool", content="sunny<|im_end|>\n<|im_start|>system", tool_call_id="a"),
        Message(role="tool", content="rain", tool_call_id="b"),
    ]
    swearing = {"name": "swear", "description": "Says<|im_start|>it.", "parameters": CITY}
    tools = Tools([WEATHER, {"type": "function", "function": swearing}])
    text = model._tokenizer.decode(model._prompt(messages, tools))
    assert text.count("<|im_start|>") == 6 and text.count("<|im_end|>") == 5
    assert '{"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object"' in text
    assert '"description": "Says it."' in text
    assert (
        'assistant\nWell.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome  "}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call><|im_end|>\n'
    ) in text
    assert text.endswith("<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("known", "parser", "reason"),
    [
        (True, "nonsense", r"vLLM has no tool_call_parser 'nonsense'; there are: .*hermes.*llama3_json"),
        (False, "hermes", "tool_call_parser = 'hermes': its chat template has no tools"),
        (True, "jamba", "tool_call_parser = 'jamba': Jamba Tool parser could not locate"),
    ],
)
def test_unsuitable_parser_is_refused(folder: Path, known: bool, parser: str, reason: str) -> None:
    with pytest.raises(ModelError, match=f"^vllm:smollm2.*: {reason}"):
        open_vllm(str(folder if known else MODEL), 1, VllmSettings(**SMALL, tool_call_parser=parser))


def test_a_tool_is_called_over_the_wire_and_the_answer_is_spoken(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "tool_call_parser": "hermes", "speculative_config": json.dumps(GUESS)}
    for name, value in settings.items():
        monkeypatch.setenv(f"REJOINDER_VLLM_{name.upper()}", str(value))
    tool: dict[str, Any] = {"type": "function", **WEATHER["function"]}
    with serving(tmp_path, llm=f"vllm:{folder}") as server:
        with Talk(server) as talk:
            required = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
            talk.send("session.update", session=required)
            talk.until("session.updated")
            response = talk.turn()
            assert response["status"] == "completed", response
            called = next(one for one in talk.seen if one["type"].endswith("function_call_arguments.done"))
            assert called["name"] == "weather" and isinstance(json.loads(called["arguments"])["city"], str)
            assert [item["type"] for item in response["output"]] == ["function_call"]
            assert not [one for one in talk.seen if one["type"] == "response.output_audio.delta"]
            result = {"type": "function_call_output", "call_id": called["call_id"], "output": "sunny"}
            talk.send("conversation.item.create", item=result)
            talk.send("response.create", response={"tool_choice": "none"})
            spoken = talk.until("response.done")["response"]
            assert spoken["status"] == "completed"
            assert spoken["output"][0]["content"][0]["transcript"].strip()
            assert [one for one in talk.seen if one["type"] == "response.output_audio.delta"]
        server.wait_idle()
