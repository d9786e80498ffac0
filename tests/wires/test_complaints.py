"""Errors for invalid messages: a sentence that names the field, without pydantic's wording."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rejoinder.agent.server.http import completion_request
from rejoinder.agent.wires.pcm import messages as pcm_messages
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.reading import read_message
from rejoinder.pipeline import Options, ProtocolError

MISSING, INVALID, UNREAD = "missing_required_parameter", "invalid_value", "unsupported_content"


def complaint(read: Callable[[Any], object], given: Any) -> tuple[str | None, str | None, str]:
    with pytest.raises(ProtocolError) as error:
        read(given)
    return error.value.code, error.value.param, str(error.value)


def understood(text: str) -> object:
    return read_message(text)


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", **fields}}


def truncate(audio_end_ms: Any) -> dict[str, Any]:
    return {"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": audio_end_ms}


PARTS = "item.content.0.type"
NO_OTHERS = "are not supported: send text"


@pytest.mark.parametrize(
    ("message", "code", "param", "sentence"),
    [
        ([1], INVALID, None, "the message has to be an object"),
        ({"a": 1}, MISSING, "type", "type: is missing"),
        (truncate("x"), INVALID, "audio_end_ms", "audio_end_ms: has to be a whole number"),
        (truncate(-1), INVALID, "audio_end_ms", "audio_end_ms: has to be 0 or more"),
        (item(content="hi"), INVALID, "item.content", "item.content: has to be a list"),
        (
            item(content=[]),
            INVALID,
            "item.content",
            "item.content: has too few entries: the minimum is 1",
        ),
        (
            item(content=[{"type": "input_text"}]),
            INVALID,
            "item.content.0",
            "item.content.0: text is missing",
        ),
        (
            item(content=[{"type": "input_image"}]),
            UNREAD,
            PARTS,
            f"{PARTS}: images are not supported: send text",
        ),
        (
            item(content=[{"type": "input_file"}]),
            UNREAD,
            PARTS,
            f"{PARTS}: files are not supported: send text",
        ),
        (
            {"type": "response.create", "response": {"max_output_tokens": "some"}},
            INVALID,
            "response.max_output_tokens",
            "response.max_output_tokens: has to be a whole number, or has to be 'inf'",
        ),
    ],
)
def test_realtime(message: Any, code: str, param: str | None, sentence: str) -> None:
    assert complaint(understood, json.dumps(message)) == (code, param, sentence)


def test_error_for_an_unknown_event_lists_the_known_ones() -> None:
    code, param, sentence = complaint(understood, '{"type": "nope"}')
    assert (code, param) == ("unknown_event", "type")
    assert sentence.startswith("type: 'nope' is not one of 'session.update', ")


@pytest.mark.parametrize(
    ("session", "param", "sentence"),
    [
        ({"tools": [{"type": "function"}]}, "tools.0.name", "is missing"),
        ({"parallel_tool_calls": "maybe"}, "parallel_tool_calls", "has to be true or false"),
        ({"audio": {"output": {"speed": 2}}}, "audio.output.speed", "has to be 1.0 or less"),
        (
            {"audio": {"input": {"turn_detection": {"type": "x"}}}},
            "audio.input.turn_detection.type",
            "'x' is not one of 'server_vad', 'semantic_vad'",
        ),
    ],
)
def test_session(session: Any, param: str, sentence: str) -> None:
    _, told, words = complaint(Realtime(Options(instructions="")).prepare, session)
    assert (told, words) == (f"session.{param}", f"session.{param}: {sentence}")


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("[]", "the message has to be an object"),
        ("x", "the message is not valid JSON: expected value at line 1 column 1"),
        ('{"type": "played", "turn": "a", "ms": 1}', "turn: has to be a whole number"),
        ('{"type": "text", "text": "a", "b": 1}', "b: unknown field"),
        ('{"type": "text", "text": ""}', "text: has too few characters: the minimum is 1"),
    ],
)
def test_raw_pcm(message: str, sentence: str) -> None:
    assert complaint(pcm_messages.parse, message)[2] == sentence


CONTENT, PART = "messages.0.content", "messages.0.content.0.type"


@pytest.mark.parametrize(
    ("message", "code", "param", "sentence"),
    [
        ({"role": "user"}, MISSING, CONTENT, "is missing"),
        ({"content": "hi"}, MISSING, "messages.0.role", "is missing"),
        (
            {"role": "user", "content": 3},
            INVALID,
            "messages.0.content",
            "has to be a string, or has to be a list",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
            UNREAD,
            PART,
            f"images {NO_OTHERS}",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            UNREAD,
            PART,
            "audio is not supported: send text",
        ),
    ],
)
def test_chat_completions(message: Any, code: str, param: str, sentence: str) -> None:
    body = json.dumps({"model": "m", "messages": [message]}).encode()
    assert complaint(completion_request.read, body) == (code, param, f"{param}: {sentence}")
