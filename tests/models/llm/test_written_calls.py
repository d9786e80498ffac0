"""Tool calls that a model writes as JSON within its text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.llm.written_calls import MAX_WRITTEN_CHARACTERS, WrittenCalls
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolCall

NAMES = ("get_weather", "set_timer", "stop")
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
PARIS = ("get_weather", {"city": "Paris"})
Read = list[str | tuple[str, object]]


def read(*pieces: str) -> Read:
    """Return the texts and calls of an answer, neighbouring texts joined."""
    calls = WrittenCalls(NAMES, "toy")
    found: Read = []
    for item in [*(one for piece in pieces for one in calls.take(piece)), *calls.end()]:
        if isinstance(item, ToolCall):
            found.append((item.name, json.loads(item.arguments)))
        elif found and isinstance(found[-1], str):
            found[-1] += item
        else:
            found.append(item)
    return found


def check(text: str, expected: Read) -> None:
    """Check what is read of a text, whole, letter by letter, and cut in two at each place."""
    for pieces in [[text], list(text), *([text[:at], text[at:]] for at in range(len(text)))]:
        assert read(*pieces) == expected, pieces


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}",
        f"<tools>\n{CALL}\n</tools>",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"```json\n<tool_call>{CALL}</tool_call>\n```",
        '{"name": "get_weather", "parameters": {"city": "Paris"}}',
        '{"arguments": {"city": "Paris"}, "name": "get_weather"}',
        '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Paris"\n  }\n}',
        '{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}',
        '{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}',
        '{{"name": "get_weather", "arguments": {"city": "Paris"}}}',
        '{"name": "get_weather", "arguments": {{"city": "Paris"}}}',
        '{"name": "Get-Weather", "arguments": {"city": "Paris"}}',
        '{"name": "get weather", "arguments": {"city": "Paris"}}',
        '{"name": "getWeather", "arguments": {"city": "Paris"}}',
    ],
)
def test_calls_are_cut_out_in_each_form(text: str) -> None:
    check(text, [PARIS])


@pytest.mark.parametrize(
    "text, expected",
    [
        (f"Let me look.\n{CALL}", ["Let me look.", PARIS]),
        (f"Well. ```json\n{CALL}\n```\nDone.", ["Well.", PARIS, "\n\nDone."]),
        (f"{CALL}\n{CALL}", [PARIS, PARIS]),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", [PARIS, PARIS]),
        (f"```json\n{CALL}\n```\n```json\n{CALL}\n```", [PARIS, PARIS]),
    ],
)
def test_text_around_calls_stays(text: str, expected: Read) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    "text",
    [
        "Hello. How are you?",
        "Two lines\n\n  and blanks  ",
        "A smile :{",
        "{",
        "{}",
        "A set {a, b} and {",
        'It is {"sky": "sunny"} there.',
        '{"name": "Anna", "age": 30}',
        '{"arguments": {}}',
        '```json\n{"sky": "sunny"}\n```',
        "```python\nprint({})\n```",
        "Use `this`, 2 < 3 and <b>that</b>.",
        'An open "quotation {"mark} here',
    ],
)
def test_other_text_passes_unchanged(text: str) -> None:
    check(text, [text])


def test_text_passes_at_once() -> None:
    calls = WrittenCalls(NAMES, "toy")
    assert [calls.take(piece) for piece in ("Hello", " there", ", {you}", " all")] == [
        ["Hello"],
        [" there"],
        [", {you}"],
        [" all"],
    ]
    assert not calls.in_object


def test_braces_and_quotation_marks_in_strings_do_not_end_a_call() -> None:
    arguments = {"city": 'a } " { \\ {{ }} ``` <tool_call>'}
    check(json.dumps({"name": "get_weather", "arguments": arguments}), [("get_weather", arguments)])


@pytest.mark.parametrize("given", ["", ', "arguments": {}', ', "arguments": null', ', "parameters": ""'])
def test_a_call_may_have_no_arguments(given: str) -> None:
    check(f'{{"name": "stop"{given}}}', [("stop", {})])


@pytest.mark.parametrize(
    "text, reason",
    [
        ('{"name": "fly", "arguments": {}}', "it called 'fly', which is no tool; there are: .*get_weather"),
        ('{"name": "get_weather", "arguments": [1]}', "the arguments of get_weather are no JSON object"),
        ('{"name": "get_weather", "arguments": "Paris"}', "the arguments of get_weather are no JSON object"),
        ('{"name": "get_weather", "arguments": {Paris}}', "it wrote a call that is no JSON"),
        ('{"name": "get_weather", "arguments": {"x": NaN}}', "it wrote a call that is no JSON"),
        ('{"name": "get_weather", "argum', "its answer ends within a call"),
        ('<tool_call>\n{"na', "its answer ends within a call"),
    ],
)
def test_what_cannot_be_called_is_an_error(text: str, reason: str) -> None:
    for pieces in ([text], list(text)):
        with pytest.raises(ModelError, match=f"^toy: {reason}"):
            read(*pieces)


def test_a_call_has_a_bound() -> None:
    begun = '{"name": "get_weather", "arguments": {"city": "'
    with pytest.raises(ModelError, match="more than 8000 characters"):
        read(begun, *["x" * 100] * (MAX_WRITTEN_CHARACTERS // 100))
    assert read("x " * MAX_WRITTEN_CHARACTERS) == ["x " * MAX_WRITTEN_CHARACTERS]


def test_each_call_has_an_identifier_of_its_own() -> None:
    first, second = WrittenCalls(NAMES, "toy").take(CALL + CALL)
    assert isinstance(first, ToolCall) and isinstance(second, ToolCall) and first.id != second.id


def test_the_caller_sees_whether_a_call_is_being_written() -> None:
    calls = WrittenCalls(NAMES, "toy")
    seen = []
    for piece in ("Well. ", '{"name": "stop"', "}", " Yes."):
        calls.take(piece)
        seen.append(calls.in_object)
    assert seen == [False, True, False, False]


@given(
    st.lists(
        st.sampled_from(["{", "}", '"', "name", ":", "```", "json", "<tool_call>", "a", " ", "\n", "\\"])
    )
)
def test_pieces_make_no_difference(parts: list[str]) -> None:
    def outcome(pieces: list[str]) -> object:
        try:
            return read(*pieces)
        except ModelError as error:
            return str(error)

    assert outcome(parts) == outcome(["".join(parts)]) == outcome(list("".join(parts)))
