"""Removes a language model's thoughts from its answer: text between tags, in the formats of common models."""

from __future__ import annotations

import re

PAIRS = {
    "<think>": "</think>",  # DeepSeek, Qwen, GLM, MiniMax, Nemotron
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # EXAONE, and Gemini if thoughts are requested
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "◁think▷": "◁/think▷",  # Kimi
    "[THINK]": "[/THINK]",  # Magistral
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A
}
"""The opening and closing tags of thoughts."""
HEADS = ("<|start|>", "<|channel|>")
"""Tags that open a message's head in Harmony, the format of gpt-oss. The head names author and channel.
https://cookbook.openai.com/articles/openai-harmony"""
BODY = "<|message|>"
"""The Harmony tag between a head and the text of its message."""
ENDS = ("<|end|>", "<|return|>", "<|call|>")
"""The Harmony tags that end a message."""
HEARD = ("final", "assistant", "")
"""Heads of messages for the user; other messages are thoughts or tool calls."""
HEAD_CHARACTERS = 32
"""Most characters of a head that are kept; each of ``HEARD`` is shorter."""

WORDS = "words"
"""The state in which text is for the user. In a thought the state is its opening tag."""
HEAD = "head"
"""The state inside a Harmony head."""
MESSAGE = "message"
"""The state inside a Harmony message that is not for the user."""
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
"""For each state, its tags and the state that each tag leads to."""
_TAGS = {state: re.compile("|".join(map(re.escape, tags))) for state, tags in _NEXT.items()}
_BEGUN = {
    state: frozenset(tag[:size] for tag in tags for size in range(1, len(tag)))
    for state, tags in _NEXT.items()
}
LONGEST = max(len(tag) for tags in _NEXT.values() for tag in tags)
"""Length of the longest tag."""


class Thoughts:
    """Takes streamed text, and returns the parts that are for the user.

    Text without tags is returned unchanged. It holds back text that may begin a tag, at most ``LONGEST``
    characters, and keeps nothing of a thought. Blanks between a thought and the first word are dropped.

    unopened: whether a thought ended that had no opening tag. Some templates, such as that of DeepSeek-R1,
        put the opening tag into the prompt. The thought is then returned as words, because only its end
        shows what it was. The reasoning parser of the chat server removes such thoughts.
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
        """Whether a thought has begun and not ended."""
        return self._state != WORDS

    def feed(self, text: str) -> str:
        """Add text; return the new text for the user, including text held back before."""
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
        """End the text; return what was held back, which is no tag."""
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
