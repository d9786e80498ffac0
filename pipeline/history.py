"""The history of a conversation: what both sides heard, and the prompt built from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.interfaces import Message, ToolCall
from rejoinder.pipeline.prompt import Entry, Key, prompt

MAX_ENTRIES = 400
"""Most entries kept; the oldest are dropped first."""
GREETED = "You have said to the caller: {}"
"""Ends the system prompt after a greeting. As a message before the user's first one, it would break the order
of some chat templates, and a model of 0.5B repeats it instead of calling a tool (docs/guides/agents.md)."""
PROMPT_CHARACTERS = 4_000
"""Default for the most characters of the conversation in a prompt."""


class History:
    """The conversation as both sides heard it, at most ``MAX_ENTRIES`` long.

    pending: identifiers of the tool calls that have not returned.
    retention: share of ``characters`` that stays in the prompt when the conversation exceeds them. It is
        well below 1 because each change at the start of the prompt invalidates the language model's prefix
        cache. With None nothing is dropped, and ``messages`` raises ProtocolError instead.
    """

    def __init__(
        self, instructions: str = "", examples: Sequence[Message] = (), characters: int = PROMPT_CHARACTERS
    ) -> None:
        self.instructions = instructions
        self.examples = list(examples)
        self.entries: deque[Entry] = deque()
        self.pending: set[str] = set()
        self.retention: float | None = 0.5
        self._characters = characters
        self._forgotten = 0

    def add_user(self, text: str, key: Key | None = None) -> None:
        """Append the user's words."""
        self.add("user", text, key)

    def add(self, role: str, text: str, key: Key | None = None) -> None:
        """Append words; ``role`` is user, assistant or system."""
        self._put(len(self.entries), Entry(role, text, key))

    def insert(self, entry: Entry, after: Key | None) -> None:
        """Insert an entry behind the one with key ``after``; first if that is None or no longer there."""
        self._put(0 if after is None else self._place(after) + 1, entry)
        if entry.role == "tool":
            self.pending.discard(entry.call)

    def remove(self, key: Key) -> bool:
        """Remove an entry; return whether it was there."""
        if (place := self._place(key)) >= 0:
            self._drop(place)
        return place >= 0

    def begin_reply(self, turn: int) -> None:
        """Append an empty entry for a reply; ``settle`` fills in its words. Later entries follow it."""
        self.add("assistant", "", ("reply", turn))

    def settle(self, turn: int, heard: str, cut: bool) -> bool:
        """Set the words of a reply that the user heard; return whether the reply is in the history.

        It may be called again when more is known. A reply without heard words is left out of the prompt.
        """
        place = self._place(("reply", turn))
        if place >= 0:
            self.entries[place].text, self.entries[place].cut = heard, cut
        return place >= 0

    def add_call(self, call: ToolCall) -> ToolCall:
        """Append a tool call and return it, with a new identifier if its own is taken."""
        id_, taken = call.id, {entry.call for entry in self.entries}
        while id_ in taken:
            id_ += "_"
        entry = Entry("call", call.arguments, ("call", id_), call=id_, name=call.name)
        self._put(len(self.entries), entry)
        self.pending.add(id_)
        return ToolCall(id_, call.name, call.arguments)

    @property
    def last_user_words(self) -> str:
        """The user's last words, "" before the first ones."""
        return next((entry.text for entry in reversed(self.entries) if entry.role == "user"), "")

    @property
    def has_user(self) -> bool:
        """Whether there is an entry of the user, also one without words."""
        return any(entry.role == "user" for entry in self.entries)

    @property
    def ends_with_agent(self) -> bool:
        """Whether the last words are the agent's; calls and results without words behind them are not."""
        for entry in reversed(self.entries):
            if entry.role == "call":
                return False  # its result follows it
            if entry.role != "tool" and entry.text:
                return entry.role == "assistant"
        return False

    def transcript(self) -> list[Message]:
        """Return the conversation, with what has left the prompt."""
        return prompt(list(self.entries))

    def messages(self, text: str | None = None, instructions: str | None = None) -> list[Message]:
        """Return the prompt. Words of the agent before the user's first ones are in the system prompt.

        text: the user's words that are not in the history yet; they come last.
        instructions: replace those of the conversation, "" or None to keep them.

        Raises ProtocolError if the conversation is too long and ``retention`` is None.
        """
        self._forget()
        kept = list(self.entries)[self._forgotten :]
        said = [*kept, Entry("user", text)] if text else kept
        instructions = instructions or self.instructions
        if not self._forgotten:
            greeting = list(takewhile(lambda entry: entry.role == "assistant", said))
            said = said[len(greeting) :]
            words = " ".join(entry.text for entry in greeting if entry.text)
            instructions = " ".join(filter(None, (instructions, GREETED.format(words) if words else "")))
        return prompt(said, instructions, self.examples)

    def _place(self, key: Key) -> int:
        """Return the index of an entry, -1 if it is missing; search backwards, as most are recent."""
        for place in range(len(self.entries) - 1, -1, -1):
            if self.entries[place].key == key:
                return place
        return -1

    def _put(self, place: int, entry: Entry) -> None:
        self.entries.insert(place, entry)
        if place < self._forgotten:
            self._forgotten += 1
        if len(self.entries) > MAX_ENTRIES:
            self._drop(0)

    def _drop(self, place: int) -> None:
        self.pending.discard(self.entries[place].call)
        del self.entries[place]
        if place < self._forgotten:
            self._forgotten -= 1

    def _forget(self) -> None:
        sizes = [len(entry.text) for entry in self.entries]
        if (size := sum(sizes[self._forgotten :])) > self._characters:
            if self.retention is None:
                reason = (
                    f"The conversation has {size} characters, and at most {self._characters} are allowed; "
                )
                advice = "truncation is off, so delete items or turn truncation on."
                raise ProtocolError(reason + advice, "context_length_exceeded")
            while self._forgotten < len(sizes) - 1:
                if sum(sizes[self._forgotten :]) <= self._characters * self.retention:
                    break
                self._forgotten += 1
