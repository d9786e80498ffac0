"""What a model with a smaller context gets of a prompt that was made for another one."""

from __future__ import annotations

import pytest

from rejoinder.models.llm.failover.continuation import fitted
from rejoinder.pipeline import Message, Tools
from rejoinder.pipeline.interfaces import CallMessage


def prompt(turns: int, result: str = "") -> list[Message]:
    messages = [Message(role="system", content="Be brief.")]
    for turn in range(turns):
        messages += [
            Message(role="user", content=f"question {turn} " + "word " * 20),
            Message(role="assistant", content="answer " * 20),
        ]
    messages.append(Message(role="user", content="and now"))
    if result:
        function = {"name": "look", "arguments": "{}"}
        call = CallMessage(id="c", type="function", function=function)
        messages.append(Message(role="assistant", content="", tool_calls=[call]))
        messages.append(Message(role="tool", content=result, tool_call_id="c"))
    return messages


def test_what_fits_stays_as_it_is() -> None:
    messages = prompt(5)
    assert fitted(messages, 8_192, None) is messages


@pytest.mark.parametrize("context", [512, 1_024, 2_048])
@pytest.mark.parametrize("result", ["", "found " * 10, "found " * 3_000])
def test_the_newest_turns_stay_whole(context: int, result: str) -> None:
    kept = fitted(prompt(100, result), context, None)
    assert [one["role"] for one in kept[:2]] == ["system", "user"]
    last = [one["role"] for one in kept[-3:]]
    assert last == (["user", "assistant", "tool"] if result else [*last[:2], "user"])
    if len(result) < 1_000:
        assert context // 3 < sum(len(str(one)) for one in kept) // 3 < context


def test_tools_need_room() -> None:
    tools = Tools([{"type": "function", "function": {"name": "look", "description": "word " * 200}}])
    assert len(fitted(prompt(100), 2_048, tools)) < len(fitted(prompt(100), 2_048, None))


def test_a_prompt_without_a_user_keeps_its_end() -> None:
    messages = [Message(role="system", content="x" * 9_000), Message(role="assistant", content="y" * 9_000)]
    assert list(fitted(messages, 512, None)) == messages
