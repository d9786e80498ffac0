"""What was said and heard, and the prompt that follows from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.interfaces import Message, ToolCall
from rejoinder.pipeline.prompt import Entry, Key, prompt

MAX_ENTRIES = 400
PROMPT_CHARACTERS = 4_000


class History:
    """The conversation as both sides heard it, at most ``MAX_ENTRIES`` long.

    pending: the calls of tools that have not returned yet. retention: see below.

    The prompt holds the newest ``characters`` or so. Where there are more it forgets all but this share at a
    time, because each change at its beginning makes the language model's prefix cache useless once. With None
    it forgets nothing, and there is no prompt any more.
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
        """Note what the user said."""
        self.add("user", text, key)

    def add(self, role: str, text: str, key: Key | None = None) -> None:
        """Note what was said or written in one of the roles user, assistant and system."""
        self._put(len(self.entries), Entry(role, text, key))

    def insert(self, entry: Entry, after: Key | None) -> None:
        """Put something behind another entry, or at the beginning where ``after`` is None or forgotten."""
        self._put(0 if after is None else self._place(after) + 1, entry)
        if entry.role == "tool":
            self.pending.discard(entry.call)

    def remove(self, key: Key) -> bool:
        """Forget an entry as if it had never been said; return whether it was there."""
        if (place := self._place(key)) >= 0:
            self._drop(place)
        return place >= 0

    def begin_reply(self, turn: int) -> None:
        """Keep the place of a reply whose words are not heard yet; what is said during it comes after it."""
        self.add("assistant", "", ("reply", turn))

    def settle(self, turn: int, heard: str, cut: bool) -> bool:
        """Note what the user heard of a reply, again where more is known by now; return whether it was there.

        One of which nothing was heard is not in the prompt.
        """
        place = self._place(("reply", turn))
        if place >= 0:
            self.entries[place].text, self.entries[place].cut = heard, cut
        return place >= 0

    def add_call(self, call: ToolCall) -> ToolCall:
        """Note that a tool is called; return the call, with another identifier where that was taken."""
        id_, taken = call.id, {entry.call for entry in self.entries}
        while id_ in taken:
            id_ += "_"
        entry = Entry("call", call.arguments, ("call", id_), call=id_, name=call.name)
        self._put(len(self.entries), entry)
        self.pending.add(id_)
        return ToolCall(id_, call.name, call.arguments)

    def messages(self, text: str | None = None, instructions: str | None = None) -> list[Message]:
        """Return the prompt, with ``text`` as the user's words that are not yet part of the history.

        instructions: replace the conversation's own. Raises ProtocolError where the conversation is too long
        and may not be forgotten.
        """
        self._forget()
        told = list(self.entries)[self._forgotten :]
        said = [*told, Entry("user", text)] if text else told
        return prompt(said, instructions or self.instructions, self.examples)

    def _place(self, key: Key) -> int:
        """Return where an entry is, -1 for nowhere; the newest come first, as they are asked for most."""
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
                reason = f"The conversation has {size} characters, and {self._characters} are the most; "
                raise ProtocolError(f"{reason}nothing is truncated.", "context_length_exceeded")
            while self._forgotten < len(sizes) - 1:
                if sum(sizes[self._forgotten :]) <= self._characters * self.retention:
                    break
                self._forgotten += 1
