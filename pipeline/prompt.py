"""A prompt in the chat shape that language models take, out of what was said and which tools were called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rejoinder.pipeline.interfaces import CallMessage, Message

Key = tuple[str, int | str]
"""What an entry is known by outside: ("user", sample), ("reply", turn), ("call", id) or ("item", id)."""
PENDING = "(There is no result yet.)"
"""Stands for a call's result until that comes: a model that saw no call at all would make it again."""

LONG = 4_000
"""Characters of a prompt that is encoded on a thread: on the loop, 4,000 digits take 10 ms."""


@dataclass(slots=True)
class Entry:
    """One thing of a conversation.

    role: user, assistant or system, with what was said in ``text``; "call" for a tool that was called, with
        its arguments in ``text``; "tool" for what that returned.
    key: what it is known by, None for what is never changed. cut: whether it broke off at a barge-in.
    call: the identifier of the call. name: of the tool that was called.
    """

    role: str
    text: str
    key: Key | None = None
    cut: bool = False
    call: str = ""
    name: str = ""

    @property
    def turn(self) -> int:
        """The number of the reply that this is, 0 for none."""
        return int(self.key[1]) if self.key and self.key[0] == "reply" else 0


def prompt(
    entries: Sequence[Entry], instructions: str = "", examples: Iterable[Message] = ()
) -> list[Message]:
    """Return the messages that say all this; an entry without words is left out.

    A call and its result stand together, at the place of the call, wherever the result came: chat servers
    refuse any other order. So a result without its call is left out, too.
    """
    results = {entry.call: entry.text for entry in entries if entry.role == "tool"}
    messages = [Message(role="system", content=instructions)] if instructions else []
    messages += [message.copy() for message in examples]
    told: list[Message] = []
    for entry in entries:
        if entry.role == "tool" or not (entry.text or entry.role == "call"):
            continue
        if entry.role != "call":
            messages += told
            told = []
            _say(messages, entry)
            continue
        function = {"name": entry.name, "arguments": entry.text or "{}"}
        call = CallMessage(id=entry.call, type="function", function=function)
        if told:  # several at once are one message
            messages[-1]["tool_calls"].append(call)
        elif messages and messages[-1]["role"] == "assistant":  # said, and then called
            messages[-1]["tool_calls"] = [call]
        else:
            messages.append(Message(role="assistant", content="", tool_calls=[call]))
        result = results.get(entry.call, PENDING)
        told.append(Message(role="tool", content=result, tool_call_id=entry.call))
    return messages + told


def is_long(messages: Iterable[Message]) -> bool:
    """Tell whether these are too many words to count on an event loop."""
    return sum(len(message["content"]) for message in messages) > LONG


def _say(messages: list[Message], entry: Entry) -> None:
    content = entry.text + ("—" if entry.cut else "")
    if messages and messages[-1]["role"] == entry.role:  # chat templates want the roles to alternate
        messages[-1]["content"] += " " + content
    else:
        messages.append(Message(role=entry.role, content=content))
