"""What was said and heard, and the prompt that follows from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.pipeline.interfaces import Message

MAX_ENTRIES = 400
PROMPT_CHARACTERS = 4_000


@dataclass(slots=True)
class Entry:
    """One thing said: ``role`` is user or assistant; ``turn`` numbers the reply; ``cut`` marks a barge-in."""

    role: str
    text: str
    turn: int = 0
    cut: bool = False


class History:
    """The conversation as both sides heard it, at most ``MAX_ENTRIES`` long.

    The prompt holds the newest ``characters`` or so. It forgets half of them at a time, because each change
    at its beginning makes the language model's prefix cache useless once.
    """

    def __init__(
        self, instructions: str = "", examples: Sequence[Message] = (), characters: int = PROMPT_CHARACTERS
    ) -> None:
        self.instructions = instructions
        self.examples = list(examples)
        self.entries: deque[Entry] = deque(maxlen=MAX_ENTRIES)
        self._characters = characters
        self._forgotten = 0

    def add_user(self, text: str) -> None:
        """Note what the user said."""
        self.add("user", text)

    def add(self, role: str, text: str) -> None:
        """Note what was said or written in one of the roles user, assistant and system."""
        self._append(Entry(role, text))

    def begin_reply(self, turn: int) -> None:
        """Keep the place of a reply whose words are not heard yet; what is said during it comes after it."""
        self._append(Entry("assistant", "", turn))

    def settle(self, turn: int, heard: str, cut: bool) -> bool:
        """Note what the user heard of a reply, again where more is known by now; return whether it was there.

        One of which nothing was heard is not in the prompt.
        """
        for entry in reversed(self.entries):
            if entry.turn == turn and entry.role == "assistant":
                entry.text, entry.cut = heard, cut
                return True
        return False

    def messages(self, text: str | None = None, instructions: str | None = None) -> list[Message]:
        """Return the prompt, with ``text`` as the user's words that are not yet part of the history.

        instructions: replace the conversation's own.
        """
        instructions = instructions or self.instructions
        self._forget()
        told = [entry for entry in list(self.entries)[self._forgotten :] if entry.text]
        messages = [Message(role="system", content=instructions)] if instructions else []
        messages += [message.copy() for message in self.examples]
        for entry in (*told, Entry("user", text)) if text else told:
            content = entry.text + ("—" if entry.cut else "")
            if messages and messages[-1]["role"] == entry.role:  # chat templates want the roles to alternate
                messages[-1]["content"] += " " + content
            else:
                messages.append(Message(role=entry.role, content=content))
        return messages

    def _append(self, entry: Entry) -> None:
        if len(self.entries) == MAX_ENTRIES:
            self._forgotten = max(0, self._forgotten - 1)
        self.entries.append(entry)

    def _forget(self) -> None:
        sizes = [len(entry.text) for entry in self.entries]
        if sum(sizes[self._forgotten :]) > self._characters:
            while self._forgotten < len(sizes) - 1:
                if sum(sizes[self._forgotten :]) <= self._characters // 2:
                    break
                self._forgotten += 1
