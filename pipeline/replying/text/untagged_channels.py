"""Removes Harmony's channels from an answer whose special tokens the server has stripped.

Harmony is the format of gpt-oss: ``<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final
<|message|>Hi.``. A server that decodes it without special tokens sends ``analysisHm.assistantfinalHi.`` (such
as in https://github.com/thinking-machines-lab/tinker-cookbook/issues/239). Only the message of the channel
``final`` is for the user (https://github.com/openai/harmony/blob/main/docs/format.md#channels).
"""

from __future__ import annotations

import re

_BEGINNING = re.compile(
    r"assistant(?P<after>analysis|commentary|final)|analysis(?=[^\W_]|[\"“])|commentary(?=[^\W_]|[\"“]| to=)"
    r"|(?P<first>final)(?=[^\W_a-z]|[\"“])"
)
"""How such an answer begins: a channel's name in small letters, and its message without a blank. ``finally``
and ``analysis of`` are words of an answer."""
_NEXT = re.compile(r"assistant(?P<after>analysis|commentary|final)")
_NEXT_MARKS = ("assistantanalysis", "assistantcommentary", "assistantfinal")
CHANNEL_MARKS = (*_NEXT_MARKS, "analysis", "commentary to=", "final")
"""What such an answer may begin with."""


class UntaggedChannels:
    """Takes streamed text, and returns the parts that are for the user.

    An answer that does not begin with the name of a channel is returned unchanged. It holds back text that
    may be such a name, at most as long as one of ``CHANNEL_MARKS``.
    """

    def __init__(self) -> None:
        self._begun = self._plain = self._hidden = self._trims = False
        self._text = ""

    @property
    def hidden(self) -> bool:
        """Whether the last message is not for the user."""
        return self._hidden

    def feed(self, text: str) -> str:
        """Add text; return the new text for the user, including text held back before."""
        if self._plain:
            return text
        text, self._text = self._text + text, ""
        if self._begun:
            return self._read(text)
        words = text.lstrip()
        blanks = text[: len(text) - len(words)]
        if found := _BEGINNING.match(words):
            self._begun = True
            self._enter(found["after"] or found["first"])
            return blanks + self._read(words[found.end() :])
        if any(mark.startswith(words) for mark in CHANNEL_MARKS):
            self._text = words
            return blanks
        self._plain = True
        return text

    def flush(self) -> str:
        """End the text; return what was held back, which is no name of a channel."""
        text, self._text = self._text, ""
        return self._take(text)

    def _read(self, text: str) -> str:
        parts = []
        while found := _NEXT.search(text):
            parts.append(self._take(text[: found.start()]))
            self._enter(found["after"])
            text = text[found.end() :]
        held = _held(text)
        self._text = text[len(text) - held :]
        return "".join([*parts, self._take(text[: len(text) - held])])

    def _enter(self, channel: str | None) -> None:
        self._hidden, self._trims = channel != "final", True

    def _take(self, text: str) -> str:
        if self._hidden:
            return ""
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        return text


def _held(text: str) -> int:
    """Return how many characters at the end may begin a name."""
    longest = max(map(len, _NEXT_MARKS)) - 1
    sizes = range(min(len(text), longest), 0, -1)
    return next((size for size in sizes if any(mark.startswith(text[-size:]) for mark in _NEXT_MARKS)), 0)
