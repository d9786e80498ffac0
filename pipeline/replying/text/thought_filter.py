"""Removes a language model's thoughts from its answer: text between tags, in the formats of common models."""

from __future__ import annotations

import re

TAG_PAIRS = {
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
HEADER_TAGS = ("<|start|>", "<|channel|>")
"""Tags that open a message's header in Harmony, the format of gpt-oss. It names author and channel.
https://cookbook.openai.com/articles/openai-harmony"""
MESSAGE_TAG = "<|message|>"
"""The Harmony tag between a header and the text of its message."""
END_TAGS = ("<|end|>", "<|return|>", "<|call|>")
"""The Harmony tags that end a message."""
USER_HEADERS = ("final", "assistant", "")
"""Headers of messages for the user; other messages are thoughts or tool calls."""
MAX_HEADER_CHARACTERS = 32
"""Most characters of a header that are kept; each of ``USER_HEADERS`` is shorter."""

ANSWER_STATE = "answer"
"""The state in which text is for the user. In a thought the state is its opening tag."""
HEADER_STATE = "header"
"""The state inside a Harmony header."""
MESSAGE = "message"
"""The state inside a Harmony message that is not for the user."""
_NEXT: dict[str, dict[str, str]] = {
    ANSWER_STATE: {
        **dict.fromkeys([*TAG_PAIRS.values(), MESSAGE_TAG, *END_TAGS], ANSWER_STATE),
        **{begin: begin for begin in TAG_PAIRS},
        **dict.fromkeys(HEADER_TAGS, HEADER_STATE),
    },
    HEADER_STATE: {**dict.fromkeys(HEADER_TAGS, HEADER_STATE), MESSAGE_TAG: MESSAGE},
    MESSAGE: {**dict.fromkeys(HEADER_TAGS, HEADER_STATE), **dict.fromkeys(END_TAGS, ANSWER_STATE)},
    **{begin: {end: ANSWER_STATE} for begin, end in TAG_PAIRS.items()},
}
"""For each state, its tags and the state that each tag leads to."""
_TAGS = {state: re.compile("|".join(map(re.escape, tags))) for state, tags in _NEXT.items()}
_TAG_PREFIXES = {
    state: frozenset(tag[:size] for tag in tags for size in range(1, len(tag)))
    for state, tags in _NEXT.items()
}
LONGEST_TAG = max(len(tag) for tags in _NEXT.values() for tag in tags)
"""Length of the longest tag."""


class ThoughtFilter:
    """Takes streamed text, and returns the parts that are for the user.

    Text without tags is returned unchanged. It holds back text that may begin a tag, at most ``LONGEST_TAG``
    characters, and keeps nothing of a thought. Blanks between a thought and the first word are dropped.

    unopened: whether a thought ended that had no opening tag. Some templates, such as that of DeepSeek-R1,
        put the opening tag into the prompt. The thought is then returned as words, because only its end
        shows what it was. The reasoning parser of the chat server removes such thoughts.
    """

    def __init__(self) -> None:
        self.unopened = False
        self._state = ANSWER_STATE
        self._text = ""
        self._header = ""
        self._has_words = False
        self._trims_next = False

    @property
    def open(self) -> bool:
        """Whether a thought has begun and not ended."""
        return self._state != ANSWER_STATE

    def feed(self, text: str) -> str:
        """Add text; return the new text for the user, including text held back before."""
        text, at, parts = self._text + text, 0, []
        while found := _TAGS[self._state].search(text, at):
            parts.append(self._take(text[at : found.start()]))
            self._enter(found[0])
            at = found.end()
        end = len(text) - self._prefix_length(text[at:][-LONGEST_TAG:])
        parts.append(self._take(text[at:end]))
        self._text = text[end:]
        return "".join(parts)

    def flush(self) -> str:
        """End the text; return what was held back, which is no tag."""
        text, self._text = self._text, ""
        return self._take(text)

    def _prefix_length(self, text: str) -> int:
        prefixes = _TAG_PREFIXES[self._state]
        return next((size for size in range(len(text), 0, -1) if text[-size:] in prefixes), 0)

    def _take(self, text: str) -> str:
        if self._state == HEADER_STATE:
            self._header = (self._header + text)[:MAX_HEADER_CHARACTERS]
        if self._state != ANSWER_STATE:
            return ""
        if self._trims_next:
            text = text.lstrip()
        if text.strip():
            self._has_words, self._trims_next = True, False
        return text

    def _enter(self, tag: str) -> None:
        if tag in TAG_PAIRS.values() and self._state == ANSWER_STATE:
            self.unopened = True
        self._state = _NEXT[self._state][tag]
        self._trims_next = not self._has_words
        if self._state == HEADER_STATE:
            self._header = ""
        elif self._state == MESSAGE and self._header.strip() in USER_HEADERS:
            self._state = ANSWER_STATE
