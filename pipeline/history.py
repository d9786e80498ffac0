"""The history of a conversation: what both sides heard, and the prompt built from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from rejoinder.pipeline.context.block import Block, block_text, with_summary
from rejoinder.pipeline.context.condense import condense
from rejoinder.pipeline.context.tokens import CONVERSATION_TOKENS, ENTRY_TOKENS, TokenBudget, shortened
from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.interfaces import Llm, Message, ToolCall
from rejoinder.pipeline.prompt import Entry, Key, prompt

if TYPE_CHECKING:
    from rejoinder.pipeline.options import Options

MAX_ENTRIES = 400
"""Most entries kept; the oldest are dropped first."""
GREETED = "You have said to the caller: {}"
"""Ends the system prompt after a greeting. As a message before the user's first one, it would break the order
of some chat templates, and a model of 0.5B repeats it instead of calling a tool (docs/guides/agents.md)."""
SUMMARY_AT = 0.85
"""Share of the tokens from which on older entries are worth a summary."""
RETENTION = 0.25
"""Default share of the tokens that stays when older entries leave the prompt. Each change at the start of the
prompt invalidates the language model's prefix cache, and with less they are fewer."""
SUMMARY_ENTRIES = 300
"""Number of entries in the prompt from which on older ones are worth a summary, however short they are."""
SUMMARY_SHARE = 4
"""A summary has at most this fraction of the conversation's tokens, and at most ``SUMMARY_TOKENS``."""
SUMMARY_TOKENS = 400
"""Most tokens of a summary."""
RESULT_TOKENS = 100
"""Tokens that stay of the result of a tool in an earlier turn once the conversation is long."""
LAST_ENTRIES = 8
"""Entries that stay in a prompt that is too long and has no turn of the user to begin with."""


class History:
    """The conversation as both sides heard it, at most ``MAX_ENTRIES`` long.

    tokens: most tokens of the conversation in a prompt, without the instructions and the examples.
    pending: identifiers of the tool calls that have not returned.
    instructions: the system prompt. examples: an invented start of the conversation.
    retention: share of ``tokens`` that stays in the prompt, beside a summary, when the conversation exceeds
        them. With None nothing is dropped, and ``messages`` raises ProtocolError instead.
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
        budget: TokenBudget | None = None,
    ) -> None:
        self.instructions = instructions
        self.examples = list(examples)
        self.entries: deque[Entry] = deque()
        self.pending: set[str] = set()
        self.tokens = tokens
        self.retention: float | None = RETENTION
        self.condenses = False
        self.summary = ""
        self._budget = budget or TokenBudget()
        self._summary_tokens = 0
        self._forgotten = 0
        self._unread: list[Entry] = []  # results that no reply has in its prompt

    @classmethod
    def of(cls, options: Options, llm: Llm | None = None) -> History:
        """Return the empty history of a session. llm: whose context and tokens count."""
        history = cls(budget=TokenBudget(llm))
        history.configure(options)
        return history

    def configure(self, options: Options, llm: Llm | None = None) -> None:
        """Take other settings, from the next prompt on. llm: another model, None to keep it."""
        if llm is not None:
            self._budget = TokenBudget(llm)
        self.instructions = options.instructions
        self.examples = list(options.shown_examples)
        self.tokens = self._budget.conversation(options)
        self.retention = options.retention
        self.condenses = options.compress is not None and options.retention is not None
        if llm is not None:
            for entry in self.entries:
                self._measure(entry)
            self._sum_up(self.summary)

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
        self._unread.clear()
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

    def restore(self, entries: Sequence[Entry]) -> None:
        """Append the entries of a conversation that another process has begun."""
        for entry in entries:
            self._put(len(self.entries), entry)
            if entry.role == "call":
                self.pending.add(entry.call)
            elif entry.role == "tool":
                self.pending.discard(entry.call)

    def heard(self, turn: int) -> str | None:
        """Return the words of a reply that the user heard; None for a reply that is not in the history."""
        place = self._place(("reply", turn))
        return self.entries[place].text if place >= 0 else None

    def is_cut(self, turn: int) -> bool:
        """Return whether the words of a reply were cut off; also of one that is not in the history."""
        place = self._place(("reply", turn))
        return place < 0 or self.entries[place].cut

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
        return prompt([replace(entry, short="") for entry in self.entries])

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
        return prompt(said, with_summary(instructions, self.summary), self.examples)

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
        entries = list(self.entries)[self._forgotten : self._boundary()]
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
            self._shorten(entry, self.tokens // 2)
            self._unread.append(entry)
        else:
            self._measure(entry)
        late = entry.role == "tool" and 0 < place <= self._forgotten
        self.entries.insert(place, entry)
        if place < self._forgotten or late:
            self._forgotten += 1
        if late and self.condenses:  # its call has left the prompt
            self._sum_up("\n".join(filter(None, [self.summary, block_text("", [entry])])))
        if len(self.entries) > MAX_ENTRIES:
            self._drop(0)

    def _drop(self, place: int) -> None:
        dropped = self.entries[place]
        self.pending.discard(dropped.call)
        self._unread = [one for one in self._unread if one is not dropped]
        del self.entries[place]
        if place < self._forgotten:
            self._forgotten -= 1

    def _measure(self, entry: Entry) -> None:
        entry.tokens = self._budget.count(entry.prompted) + ENTRY_TOKENS if entry.prompted else 0

    def _long(self) -> bool:
        return self.size > self.tokens * SUMMARY_AT or len(self.entries) - self._forgotten > SUMMARY_ENTRIES

    def _shorten(self, entry: Entry, tokens: int) -> None:
        short = shortened(entry.text, tokens, self._budget.count)
        entry.short = short if short != entry.text else ""
        self._measure(entry)

    def _shorten_results(self) -> None:
        """Shorten the results of earlier turns. It changes the prompt, so it comes with other changes.

        One that came while the user went on speaking stays until a reply has read it.
        """
        asked = max((place for place, entry in enumerate(self.entries) if entry.role == "user"), default=0)
        for entry in list(self.entries)[self._forgotten : asked]:
            if entry.role == "tool" and entry.tokens > RESULT_TOKENS + ENTRY_TOKENS:
                if not self._is_unread(entry):
                    self._shorten(entry, RESULT_TOKENS)

    def _is_unread(self, entry: Entry) -> bool:
        return any(entry is one for one in self._unread)

    def _fit_results(self) -> None:
        """Shorten the results in a prompt that is too long without older entries."""
        results = [entry for entry in list(self.entries)[self._forgotten :] if entry.role == "tool"]
        left = self.tokens - self.size + sum(entry.tokens for entry in results)
        for entry in results:
            self._shorten(entry, max(RESULT_TOKENS // 2, left // len(results) - ENTRY_TOKENS))

    def _boundary(self, with_calls: bool = False) -> int:
        """Return where the prompt may begin: enough of the older entries are in front of it.

        A prompt begins with the user, because many chat templates require it. The last turn is in it, and no
        call is parted from its result, also from one that has not come yet, or that no reply has read.
        with_calls: whether a call may be, all the same.
        """
        share = RETENTION if self.retention is None else self.retention
        most = min(self.tokens * share, self.tokens - self._summary_limit())
        end, left, calls = self._forgotten, self.size - self._summary_tokens, set[str]()
        for place in range(self._forgotten, len(self.entries)):
            entry = self.entries[place]
            if entry.role == "user" and (with_calls or not calls):
                end = place
                if left <= most and len(self.entries) - place <= SUMMARY_ENTRIES // 2:
                    break
            left -= entry.tokens
            if entry.role == "call":
                calls.add(entry.call)
            elif entry.role == "tool" and not self._is_unread(entry):
                calls.discard(entry.call)
        return end

    def _forget(self) -> None:
        if (size := self.size) <= self.tokens:
            return
        if self.retention is None:
            reason = f"The conversation has {size} tokens, and at most {self.tokens} are allowed; "
            advice = "truncation is off, so delete items or turn truncation on."
            raise ProtocolError(reason + advice, "context_length_exceeded")
        if self.condenses:
            self._condense()
            return
        for place in range(self._forgotten, len(self.entries) - 1):
            if size <= self.tokens * self.retention:
                break
            size -= self.entries[place].tokens
            self._forgotten = place + 1

    def _condense(self) -> None:
        """Let lines stand for older entries: no summary has come in time.

        First up to a call without a result, then with it, for some results never come.
        """
        self._shorten_results()
        self._leave(self._boundary())
        self._leave(self._boundary(with_calls=True))
        if self.size > self.tokens:
            self._fit_results()
        if not any(entry.role == "user" for entry in list(self.entries)[self._forgotten + 1 :]):
            self._leave(len(self.entries) - LAST_ENTRIES)

    def _leave(self, end: int) -> None:
        """Let lines stand for the entries in front of ``end``, if the prompt is too long."""
        if self.size > self.tokens and end > self._forgotten:
            text = block_text(self.summary, list(self.entries)[self._forgotten : end])
            self._forgotten = end
            self._sum_up(condense(text, self._summary_limit()))

    def _summary_limit(self) -> int:
        return min(self.tokens // SUMMARY_SHARE, SUMMARY_TOKENS)

    def _sum_up(self, summary: str) -> None:
        self.summary = shortened(summary, self._summary_limit(), self._budget.count)
        self._summary_tokens = self._budget.count(self.summary) + ENTRY_TOKENS if self.summary else 0

    def _forget_summary(self) -> None:
        """Drop a summary whose entries change, and make it anew from all entries before the prompt."""
        if self.summary:
            self._forgotten = 0
            self._sum_up("")
