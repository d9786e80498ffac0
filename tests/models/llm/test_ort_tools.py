"""Tool calls of the embedded language model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import speech
from support.tool_calls import CITY, WEATHER, answered
from support.toy_qwen2 import WORDS, write

from rejoinder.models.llm.ort.adapter import OrtLlm
from rejoinder.models.llm.ort.call_guide import CallGuide, CallOpening, CallOpenings, probability
from rejoinder.models.llm.ort.decoder_graph import CONTEXT
from rejoinder.models.llm.ort.prompts import PROMPT_TOKENS
from rejoinder.models.llm.ort.sampling import Sampling
from rejoinder.models.llm.ort.tools import ToolOrtLlm, open_ort
from rejoinder.pipeline import Message, ToolCall, ToolLlm, Tools, ToolWarmLlm
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.options import INSTRUCTIONS

TEMPLATE = """\
{% if tools %}<|im_start|>tools{% for tool in tools %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A chat template in the manner of Qwen2.5's."""
HEADS, HEAD, WIDTH, INNER = 2, 32, 64, 64
SHAPE = {
    "block_count": 1,
    "embedding_length": WIDTH,
    "feed_forward_length": INNER,
    "head_count": HEADS,
    "head_count_kv": HEADS,
}
"""The shape of the small random model."""


def toy_file(path: Path, template: str) -> None:
    """Write a small model with random weights."""
    chance = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        "output_norm.weight": (WIDTH,),
        "token_embd.weight": (len(WORDS), WIDTH),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_output.weight": (WIDTH, HEADS * HEAD),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    for part in "qkv":
        shapes[f"blk.0.attn_{part}.weight"] = (HEADS * HEAD, WIDTH)
        shapes[f"blk.0.attn_{part}.bias"] = (HEADS * HEAD,)
    arrays = {name: chance.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write(path, arrays, SHAPE, template)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolOrtLlm]:
    path = tmp_path_factory.mktemp("toy") / "toy.gguf"
    toy_file(path, TEMPLATE)
    loaded = open_ort(path, 1)
    assert isinstance(loaded, ToolOrtLlm)
    yield loaded
    asyncio.run(loaded.aclose())


def text_of(model: OrtLlm, messages: Sequence[Message], tools: Tools) -> str:
    return str(model._tokenizer.decode(model._prompt(messages, tools), skip_special_tokens=False))


def call(id: str, arguments: str = '{"city": "Rome"}') -> Message:
    function = {"name": "weather", "arguments": arguments}
    return Message(
        role="assistant", content="", tool_calls=[{"id": id, "type": "function", "function": function}]
    )


def result(id: str, text: str = "sunny") -> Message:
    return Message(role="tool", content=text, tool_call_id=id)


def said(text: str) -> Message:
    return Message(role="user", content=text)


def test_a_model_calls_tools_if_its_template_knows_them(toy: ToolOrtLlm, tmp_path: Path) -> None:
    assert isinstance(toy, ToolLlm) and isinstance(toy, ToolWarmLlm)
    check_fits("llm", toy)
    for template in ("{{ messages }}", "{{ tools }}", "{{ raise_exception('no') }}"):
        path = tmp_path / f"{len(template)}.gguf"
        toy_file(path, template)
        plain = open_ort(path, 1)
        assert not isinstance(plain, ToolLlm) and not isinstance(plain, ToolWarmLlm)
        asyncio.run(plain.aclose())


def test_the_prompt_has_the_tools_the_calls_and_their_results(toy: ToolOrtLlm) -> None:
    described = {"name": "weather", "description": "<|im_end|>It's.", "parameters": CITY}
    tools = Tools([{"type": "function", "function": described}])
    odd = call("b", "Rome")
    messages = [
        said("Hi<|im_start|>"),
        call("a", '{"city": "<|im_end|>Zürich"}'),
        result("a"),
        odd,
        result("b"),
    ]
    text = text_of(toy, messages, tools)
    assert text.count("<|im_start|>") == 7 and text.count("<|im_end|>") == 6
    assert '"description": " It\'s.", "parameters": {"type": "object"' in text  # not escaped, not sorted
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": " Zürich"}}\n</tool_call>' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>' in text
    assert "<|im_start|>tool\nsunny<|im_end|>" in text


def test_a_long_conversation_keeps_calls_and_results_together(toy: ToolOrtLlm) -> None:
    tools = Tools([WEATHER])
    for before in range(8):
        messages = [Message(role="system", content="You are Ada.")]
        messages += [said(f"word {number} " * 8) for number in range(before)]
        for number in range(20):
            messages += [said("What is it like? " * 4), call(f"{number}"), result(f"{number}")]
        tokens = toy._prompt(messages, tools)
        assert PROMPT_TOKENS / 4 < len(tokens) <= PROMPT_TOKENS + 64 < CONTEXT
        text = toy._tokenizer.decode(tokens, skip_special_tokens=False)
        assert text.count("<tool_call>") == text.count("<|im_start|>tool\n") > 0
        assert "You are Ada." in text


def test_the_call_that_is_to_be_answered_is_never_dropped(toy: ToolOrtLlm) -> None:
    messages = [said("word " * 80) for _ in range(12)]
    messages += [call("last"), *[result("last", "sunny " * 10) for _ in range(9)]]
    text = text_of(toy, messages, Tools([WEATHER]))
    assert text.count("<tool_call>") == 1 and text.count("<|im_start|>tool\n") == 9


def test_a_warmed_prompt_with_tools_is_read_once(toy: ToolOrtLlm) -> None:
    tools, messages = Tools([WEATHER]), [said("What is the weather in Rome?")]
    asyncio.run(toy.warm_answer(messages, tools))
    whole = toy._prompt(messages, tools)
    assert any(slot.cached[: len(whole)] == whole for slot in toy._cache_slots)


def test_after_a_result_the_prompt_has_no_tools(toy: ToolOrtLlm, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Tools] = []
    tokens = toy._prompts.tokens

    def seen(messages: Sequence[Message], tools: Tools) -> list[int]:
        given.append(tools)
        return tokens(messages, tools)

    monkeypatch.setattr(toy._prompts, "tokens", seen)
    pieces = asyncio.run(answered(toy, [said("Hi"), call("a"), result("a")], Tools([WEATHER])))
    assert given == [Tools()]
    assert not [one for one in pieces if isinstance(one, ToolCall) or set("{`<") & set(one)]


# --- the form of a call ---------------------------------------------------------------------------------


def logits(*likely: int) -> Any:
    found = np.zeros(10, np.float32)
    found[list(likely)] = [30.0 - 5 * place for place in range(len(likely))]
    return found


def guide(*openings: Sequence[int]) -> CallGuide:
    """Return a guide with 9 as the brace."""
    made = CallOpenings([CallOpening(one, 1, len(one) - 1) for one in openings])
    return CallGuide(made, np.array([9]), np.array([9]), Sampling(temperature=0), np.random.default_rng(1))


def test_a_call_after_a_call_gets_its_form() -> None:
    chosen = guide([9, 1, 2, 3], [9, 1, 4, 3], [9, 1, 4, 5, 3])
    chosen.in_call = True
    assert chosen.next(logits(9, 8), [3]) == [9]
    chosen.in_call = False
    assert chosen.next(logits(6, 9), [3, 9]) == [6]
    assert chosen.next(logits(9, 7), [3, 9, 6]) == [9, 1]
    assert chosen.next(logits(8, 4), [3, 9, 6, 9, 1]) == [4]
    assert chosen.next(logits(2, 3, 5), [3, 9, 6, 9, 1, 4]) == [3]


def test_an_answer_in_words_has_no_brace() -> None:
    for chosen in (guide(), guide([9, 1, 2, 3])):
        assert chosen.next(logits(9, 7), []) == chosen.next(logits(9, 7), [7]) == [7]


def test_only_tokens_of_names_count() -> None:
    openings = CallOpenings([CallOpening([9, 1, 2, 3], 2, 3)])
    assert [openings.in_name([9, 1, 2, 3][:count]) for count in range(4)] == [False, False, True, False]
    assert openings.forced([9]) == [1, 2, 3] and not openings.after([9, 1, 2, 3])
    assert probability(logits(9, 7), [9]) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_required_call_is_begun_for_the_model(toy: ToolOrtLlm, choice: Any) -> None:
    """The random model never ends its call, so the call is an error; it has the tool's name."""
    tools = Tools([WEATHER], choice, parallel=False)
    with pytest.raises(Exception, match=r'(?s)within a call: \{"name": "weather", "arguments": \{|no JSON'):
        asyncio.run(answered(toy, [said("Hi")], tools))


# --- the real model -------------------------------------------------------------------------------------


def function(name: str, description: str, **properties: dict[str, str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


FUNCTIONS = (
    function("get_weather", "Get the current weather in a city.", city={"type": "string"}),
    function("set_timer", "Set a timer.", minutes={"type": "integer"}),
)
SYSTEM = Message(role="system", content=INSTRUCTIONS)


@pytest.fixture(scope="module")
def qwen() -> Iterator[ToolOrtLlm]:
    loaded = speech.model("ort:qwen2.5-coder-0.5b-instruct")
    yield loaded
    asyncio.run(loaded.aclose())


def parted(qwen: ToolOrtLlm, tools: Tools, *messages: Message) -> tuple[str, list[tuple[str, object]]]:
    pieces = asyncio.run(answered(qwen, [SYSTEM, *messages], tools))
    calls = [(one.name, json.loads(one.arguments)) for one in pieces if isinstance(one, ToolCall)]
    return "".join(one for one in pieces if isinstance(one, str)), calls


@pytest.mark.weights
def test_the_small_model_calls_the_tool_that_is_asked_for(qwen: ToolOrtLlm) -> None:
    tools = Tools(FUNCTIONS)
    assert parted(qwen, tools, said("What is the weather in Paris?")) == (
        "",
        [("get_weather", {"city": "Paris"})],
    )
    assert parted(qwen, tools, said("Set a timer for ten minutes.")) == ("", [("set_timer", {"minutes": 10})])


@pytest.mark.weights
def test_the_small_model_answers_in_words_where_no_tool_fits(qwen: ToolOrtLlm) -> None:
    text, calls = parted(qwen, Tools(FUNCTIONS), said("Hello, how are you?"))
    assert text.strip() and not calls


@pytest.mark.weights
def test_the_small_model_calls_what_it_must(qwen: ToolOrtLlm) -> None:
    named = Tools(FUNCTIONS, {"type": "function", "function": {"name": "set_timer"}}, parallel=False)
    text, ((name, _),) = parted(qwen, named, said("Good morning."))
    assert (text, name) == ("", "set_timer")
    required = Tools(FUNCTIONS, "required", parallel=False)
    assert parted(qwen, required, said("And in Rome?")) == ("", [("get_weather", {"city": "Rome"})])


@pytest.mark.weights
def test_the_small_model_answers_in_words_after_a_result(qwen: ToolOrtLlm) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    made = Message(
        role="assistant", content="", tool_calls=[{"id": "a", "type": "function", "function": function}]
    )
    returned = result("a", '{"sky": "sunny", "temperature": 21}')
    text, calls = parted(qwen, Tools(FUNCTIONS), said("What is the weather in Paris?"), made, returned)
    assert text.strip() and not set("{`<") & set(text) and not calls
