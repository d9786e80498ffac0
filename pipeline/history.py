"""The history of a conversation: what both sides heard, and the prompt built from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rejoinder.pipeline.context.block import Block, block_text, with_summary
from rejoinder.pipeline.context.condense import condense
from rejoinder.pipeline.context.tokens import CONVERSATION_TOKENS, ENTRY_TOKENS, Counter, estimated, shortened
from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.interfaces import Message, ToolCall
from rejoinder.pipeline.prompt import Entry, Key, prompt

MAX_ENTRIES = 400
"""Most entries kept; the oldest are dropped first."""
SUMMARY_AT = 0.85
"""Share of the tokens from which on older entries are worth a summary."""
KEPT_SHARE = 0.2
"""Share of the tokens that stay beside a new summary. With less, the prompt's start changes less often."""
SUMMARY_ENTRIES = 300
"""Number of entries in the prompt from which on older ones are worth a summary, however short they are."""
SUMMARY_SHARE = 4
"""A summary has at most this fraction of the conversation's tokens, and at most ``SUMMARY_TOKENS``."""
SUMMARY_TOKENS = 400
"""Most tokens of a summary."""
RESULT_TOKENS = 100
"""Tokens that stay of the result of a tool in an earlier turn once the conversation is long."""


class History:
    """The conversation as both sides heard it, at most ``MAX_ENTRIES`` long.

    tokens: most tokens of the conversation in a prompt, without the instructions and the examples.
    pending: identifiers of the tool calls that have not returned.
    instructions: the system prompt. examples: an invented start of the conversation.
    retention: share of ``tokens`` that stays in the prompt when the conversation exceeds them. It is
        well below 1 because each change at the start of the prompt invalidates the language model's prefix
        cache. With None nothing is dropped, and ``messages`` raises ProtocolError instead.
    condenses: whether a summary replaces the entries that leave the prompt. ``condense`` makes it where
        ``replace`` has not brought a better one in time.
    summary: stands in the prompt for the entries that have left it, "" for nothing.

    Tokens are counted once, when a text enters.
    """

    def __init__(
        self,
        instructions: str = "",
        examples: Sequence[Message] = (),
        tokens: int = CONVERSATION_TOKENS,
        count: Counter = estimated,
    ) -> None:
        self.entries: deque[Entry] = deque()
        self.pending: set[str] = set()
        self.summary = ""
        self._count = count
        self._summary_tokens = 0
        self._forgotten = 0
        self.configure(instructions, examples, tokens, 0.5)

    def configure(
        self,
        instructions: str,
        examples: Sequence[Message],
        tokens: int,
        retention: float | None,
        condenses: bool = False,
    ) -> None:
        """Replace the settings of the prompt, from the next one on."""
        self.instructions = instructions
        self.examples = list(examples)
        self.tokens = tokens
        self.retention = retention
        self.condenses = condenses

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
            if place < self._forgotten:
                self._forget_summary()
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
            if place < self._forgotten and self.entries[place].text != heard:
                self._forget_summary()
            self.entries[place].text, self.entries[place].cut = heard, cut
            self._measure(self.entries[place])
        return place >= 0

    def heard(self, turn: int) -> str:
        """Return the words of a reply that the user heard, "" for a reply that is not in the history."""
        place = self._place(("reply", turn))
        return self.entries[place].text if place >= 0 else ""

    def is_cut(self, turn: int) -> bool:
        """Return whether the words of a reply were cut off; also of one that is not in the history."""
        place = self._place(("reply", turn))
        return place < 0 or self.entries[place].cut

    def restore(self, entries: Sequence[Entry]) -> None:
        """Append the entries of a conversation that another process has begun."""
        for entry in entries:
            self._put(len(self.entries), entry)
            if entry.role == "call":
                self.pending.add(entry.call)
            elif entry.role == "tool":
                self.pending.discard(entry.call)

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
    def ends_with_agent(self) -> bool:
        """Whether the prompt ends with words of the agent, and not with the user's or a tool's result."""
        for entry in reversed(self.entries):
            if entry.role == "call":
                return False  # its result follows it
            if entry.role != "tool" and entry.text:
                return entry.role == "assistant"
        return False

    @property
    def asked(self) -> str:
        """The user's last words, "" if there are none."""
        return next((entry.text for entry in reversed(self.entries) if entry.role == "user"), "")

    def messages(self, text: str | None = None, instructions: str | None = None) -> list[Message]:
        """Return the prompt.

        text: the user's words that are not in the history yet; they come last.
        instructions: replace those of the conversation, "" or None to keep them.

        Raises ProtocolError if the conversation is too long and ``retention`` is None.
        """
        self._forget()
        kept = list(self.entries)[self._forgotten :]
        said = [*kept, Entry("user", text)] if text else kept
        return prompt(said, with_summary(instructions or self.instructions, self.summary), self.examples)

    def opening(self, instructions: str | None = None) -> list[Message] | None:
        """Return the prompt before the user's first words; None if more than talk came after them.

        Instructions, calls and results that came later could be in any answer.
        """
        first = next((at for at, entry in enumerate(self.entries) if entry.role == "user"), None)
        later = [] if first is None else list(self.entries)[first:]
        if any(entry.role not in ("user", "assistant") for entry in later):
            return None
        return prompt(list(self.entries)[:first], instructions or self.instructions, self.examples)

    def transcript(self) -> list[Message]:
        """Return the conversation, with what has left the prompt."""
        return prompt(list(self.entries))

    @property
    def size(self) -> int:
        """Tokens of the conversation in a prompt, with the summary."""
        return self._summary_tokens + sum(entry.tokens for entry in list(self.entries)[self._forgotten :])

    def block(self) -> Block | None:
        """Return the older entries of a long conversation, for a summary; None if it is not long.

        Long results of tools are shortened first, which may suffice. The entries of the last turn, and those
        from a call on that has not returned, are not in the block.
        """
        if self.retention is None or not self._long():
            return None
        self._shorten_results()
        if not self._long():
            return None
        end, left = self._forgotten, self.size - self._summary_tokens
        most = self.tokens * min(self.retention, KEPT_SHARE)
        for place, entry in enumerate(self.entries):
            if place < self._forgotten:
                continue
            if entry.role == "call" and entry.call in self.pending:
                break
            if entry.role == "user":  # a prompt begins with the user: many chat templates require it
                end = place
                if left <= most and len(self.entries) - place <= SUMMARY_ENTRIES // 2:
                    break
            left -= entry.tokens
        entries = list(self.entries)[self._forgotten : end]
        return Block(self.summary, entries, self._summary_limit()) if entries else None

    def replace(self, block: Block, summary: str) -> bool:
        """Let a summary stand for a block; return whether the block was still as it was."""
        end = self._forgotten + len(block.entries)
        if not block.fits(self.summary, list(self.entries)[self._forgotten : end]):
            return False
        self._forgotten = end
        self._sum_up(summary)
        return True

    def _place(self, key: Key) -> int:
        """Return the index of an entry, -1 if it is missing; search backwards, as most are recent."""
        for place in range(len(self.entries) - 1, -1, -1):
            if self.entries[place].key == key:
                return place
        return -1

    def _put(self, place: int, entry: Entry) -> None:
        if entry.role == "tool" and self.condenses:
            entry.text = shortened(entry.text, self.tokens // 2, self._count)
        self._measure(entry)
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

    def _measure(self, entry: Entry) -> None:
        entry.tokens = self._count(entry.text) + ENTRY_TOKENS if entry.text else 0

    def _long(self) -> bool:
        return self.size > self.tokens * SUMMARY_AT or len(self.entries) - self._forgotten > SUMMARY_ENTRIES

    def _shorten_results(self) -> None:
        """Shorten the results of earlier turns. It changes the prompt, so it comes with other changes."""
        asked = max((place for place, entry in enumerate(self.entries) if entry.role == "user"), default=0)
        for place, entry in enumerate(self.entries):
            if self._forgotten <= place < asked and entry.role == "tool":
                entry.text = shortened(entry.text, RESULT_TOKENS, self._count)
                self._measure(entry)

    def _forget(self) -> None:
        if (size := self.size) <= self.tokens:
            return
        if self.retention is None:
            reason = f"The conversation has {size} tokens, and at most {self.tokens} are allowed; "
            advice = "truncation is off, so delete items or turn truncation on."
            raise ProtocolError(reason + advice, "context_length_exceeded")
        if self.condenses:
            self._shorten_results()
            if self.size <= self.tokens:
                return
        begin, size, most = self._forgotten, self.size, self.tokens * self.retention
        for place in range(begin, len(self.entries) - 1):
            if size <= most:
                break
            size -= self.entries[place].tokens
            self._forgotten = place + 1
        if self.condenses:
            self._forgotten = self._next_turn(self._forgotten)
            text = block_text(self.summary, list(self.entries)[begin : self._forgotten])
            self._sum_up(condense(text, self._summary_limit(), self._count))

    def _next_turn(self, place: int) -> int:
        """Return where the next turn of the user begins, so that no call is parted from its result."""
        turns = (at for at in range(place, len(self.entries)) if self.entries[at].role == "user")
        return next(turns, place)

    def _summary_limit(self) -> int:
        return min(self.tokens // SUMMARY_SHARE, SUMMARY_TOKENS)

    def _sum_up(self, summary: str) -> None:
        self.summary = shortened(summary, self._summary_limit(), self._count)
        self._summary_tokens = self._count(self.summary) + ENTRY_TOKENS if self.summary else 0

    def _forget_summary(self) -> None:
        """Drop a summary whose entries change, and make it anew from all entries before the prompt."""
        if self.summary:
            self._forgotten = 0
            self._sum_up("")
