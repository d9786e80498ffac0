"""Leave out what a language model writes for itself: thoughts between tags, as their formats have them."""

from __future__ import annotations

import re

PAIRS = {
    "<think>": "</think>",  # DeepSeek, Qwen, GLM, MiniMax, Nemotron
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # EXAONE, and Gemini where it is asked for its thoughts
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "◁think▷": "◁/think▷",  # Kimi
    "[THINK]": "[/THINK]",  # Magistral
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A
}
HEADS = ("<|start|>", "<|channel|>")
BODY = "<|message|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")
"""Harmony, the format of gpt-oss: a head names the author and the channel, and a message stands behind it.
https://cookbook.openai.com/articles/openai-harmony"""
HEARD = ("final", "assistant", "")
"""Heads of messages that are for the user: the others are thoughts, and calls of tools."""
HEAD_CHARACTERS = 32
"""More of a head is not kept: none of ``HEARD`` is that long."""

WORDS, HEAD, MESSAGE = "words", "head", "message"
_NEXT: dict[str, dict[str, str]] = {
    WORDS: {
        **dict.fromkeys([*PAIRS.values(), BODY, *ENDS], WORDS),
        **{begin: begin for begin in PAIRS},
        **dict.fromkeys(HEADS, HEAD),
    },
    HEAD: {**dict.fromkeys(HEADS, HEAD), BODY: MESSAGE},
    MESSAGE: {**dict.fromkeys(HEADS, HEAD), **dict.fromkeys(ENDS, WORDS)},
    **{begin: {end: WORDS} for begin, end in PAIRS.items()},
}
"""For each state the tags that it knows, and the state that each of them leads to."""
_TAGS = {state: re.compile("|".join(map(re.escape, tags))) for state, tags in _NEXT.items()}
_BEGUN = {
    state: frozenset(tag[:size] for tag in tags for size in range(1, len(tag)))
    for state, tags in _NEXT.items()
}
LONGEST = max(len(tag) for tags in _NEXT.values() for tag in tags)


class Thoughts:
    """Takes a text as it is written, and gives back what of it is meant for the user.

    Text without tags comes back unchanged. What may be the beginning of a tag is held back until it is known
    whether it is one, ``LONGEST`` characters at most; nothing of a thought is kept. Blanks between a thought
    and the first word are left out.

    Where the opening tag is part of the prompt, as in the templates of DeepSeek-R1, thoughts cannot be told
    from an answer before their end comes. ``unopened`` says that this has happened: what stood before it was
    given back already. The reasoning parser of the chat server takes such thoughts out.
    """

    def __init__(self) -> None:
        self.unopened = False
        self._state = WORDS
        self._text = ""
        self._head = ""
        self._begun = False
        self._trims = False

    @property
    def open(self) -> bool:
        """Tell whether a thought has begun and not ended."""
        return self._state != WORDS

    def feed(self, text: str) -> str:
        """Add text and return what of it, and of what was held back, is meant for the user."""
        text, at, said = self._text + text, 0, []
        while found := _TAGS[self._state].search(text, at):
            said.append(self._take(text[at : found.start()]))
            self._enter(found[0])
            at = found.end()
        end = len(text) - self._held(text[at:][-LONGEST:])
        said.append(self._take(text[at:end]))
        self._text = text[end:]
        return "".join(said)

    def flush(self) -> str:
        """Return what was held back and is no tag, as nothing more comes."""
        text, self._text = self._text, ""
        return self._take(text)

    def _held(self, text: str) -> int:
        begun = _BEGUN[self._state]
        return next((size for size in range(len(text), 0, -1) if text[-size:] in begun), 0)

    def _take(self, text: str) -> str:
        if self._state == HEAD:
            self._head = (self._head + text)[:HEAD_CHARACTERS]
        if self._state != WORDS:
            return ""
        if self._trims:
            text = text.lstrip()
        if text.strip():
            self._begun, self._trims = True, False
        return text

    def _enter(self, tag: str) -> None:
        if tag in PAIRS.values() and self._state == WORDS:
            self.unopened = True
        self._state = _NEXT[self._state][tag]
        self._trims = not self._begun
        if self._state == HEAD:
            self._head = ""
        elif self._state == MESSAGE and self._head.strip() in HEARD:
            self._state = WORDS
