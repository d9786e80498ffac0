"""Builds a chat prompt from the entries of a conversation: spoken words, tool calls and their results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rejoinder.pipeline.interfaces import CallMessage, Message

Key = tuple[str, int | str]
"""Identifies an entry: ("user", sample), ("reply", turn), ("call", id) or ("item", id)."""
PENDING = "(There is no result yet.)"
"""The result of a tool call that has not returned. A model that sees no call would repeat it."""
NO_JSON = "not_valid_json"
"""The argument that holds what a model wrote in place of a JSON object. The result of the call says so."""
LONG_PROMPT = 4_000
"""Longest prompt that is encoded on the event loop, in characters: 4,000 digits take 10 ms."""
INFORMED = "Use this information if it helps:\n{}\n\n{}"
"""The user's last words behind what was retrieved for them."""

EMPTY_ANSWER = "the answer has no words"
"""The error of a model that answers the user with nothing."""


@dataclass(slots=True)
class Entry:
    """One entry of a conversation.

    role: "user", "assistant" or "system" for words; "call" for a tool call; "tool" for its result.
    text: the words, the arguments of the call as JSON, or the result of the tool.
    key: identifies the entry; None for an entry that never changes.
    cut: whether a barge-in cut the words off.
    call: identifier of the tool call. name: name of the tool.
    short: stands in the prompt in place of a result that is too long. tokens: of the entry in a prompt.
    """

    role: str
    text: str
    key: Key | None = None
    cut: bool = False
    call: str = ""
    name: str = ""
    short: str = field(default="", compare=False)
    tokens: int = field(default=0, compare=False)

    @property
    def prompted(self) -> str:
        """What stands in the prompt."""
        return self.short or self.text

    @property
    def turn(self) -> int:
        """The number of the reply that this entry holds, 0 for other entries."""
        return int(self.key[1]) if self.key and self.key[0] == "reply" else 0


def expects_words(messages: Sequence[Message]) -> bool:
    """Return whether an answer without words would be a fault: the user spoke last.

    After a tool's result a model may have nothing to add.
    """
    return bool(messages) and messages[-1]["role"] == "user"


def prompt(
    entries: Sequence[Entry], instructions: str = "", examples: Iterable[Message] = ()
) -> list[Message]:
    """Return the chat messages for these entries; entries without words are left out.

    A tool's result follows its call directly, wherever the result stands in ``entries``: chat servers refuse
    any other order. A result without its call is left out.
    """
    results = {entry.call: entry.prompted for entry in entries if entry.role == "tool"}
    messages = [Message(role="system", content=instructions)] if instructions else []
    messages += [message.copy() for message in examples]
    returned: list[Message] = []
    for entry in entries:
        if entry.role == "tool":
            continue
        if entry.role != "call":  # also a reply without words, so that the calls of two replies stay apart
            messages += returned
            returned = []
            if entry.text:
                _say(messages, entry)
            continue
        function = {"name": entry.name, "arguments": _arguments(entry.text)}
        call = CallMessage(id=entry.call, type="function", function=function)
        if returned:  # the calls of one reply share one message
            messages[-1]["tool_calls"].append(call)
        elif messages and messages[-1]["role"] == "assistant":  # the reply spoke, then called
            messages[-1]["tool_calls"] = [call]
        else:
            messages.append(Message(role="assistant", content="", tool_calls=[call]))
        result = results.get(entry.call, PENDING)
        returned.append(Message(role="tool", content=result, tool_call_id=entry.call))
    return messages + returned


def informed(messages: Sequence[Message], found: str) -> list[Message]:
    """Return the messages with what was retrieved, "" for nothing, in front of the user's last words.

    It stands there because all that precedes these words may be in the language model's prefix cache.
    """
    place = max((at for at, one in enumerate(messages) if one["role"] == "user"), default=-1)
    told = list(messages)
    if found and place >= 0:
        told[place] = Message(role="user", content=INFORMED.format(found, messages[place]["content"]))
    return told


def is_long(messages: Iterable[Message]) -> bool:
    """Return whether the prompt is too long for its tokens to be counted on the event loop."""
    return sum(map(_length, messages)) > LONG_PROMPT


def _length(message: Message) -> int:
    calls = (call["function"] for call in message.get("tool_calls", ()))
    return len(message["content"]) + sum(len(call["name"]) + len(call["arguments"]) for call in calls)


def _arguments(text: str) -> str:
    """Return the arguments of a call as a JSON object, also where the model wrote something else.

    Chat servers parse those of earlier calls, and refuse the whole prompt if one is not JSON
    (github.com/ggml-org/llama.cpp/issues/25510).
    """
    try:
        if isinstance(json.loads(text or "{}"), dict):
            return text or "{}"
    except (ValueError, RecursionError):
        pass
    return json.dumps({NO_JSON: text}, ensure_ascii=False)


def _say(messages: list[Message], entry: Entry) -> None:
    content = entry.text + ("—" if entry.cut else "")
    if messages and messages[-1]["role"] == entry.role:  # chat templates require alternating roles
        messages[-1]["content"] += " " + content
    else:
        messages.append(Message(role=entry.role, content=content))
