"""The settings of one reply, complete: its request's, and the session's where the request has none."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.pipeline.interfaces import NO_TOOLS, Tools
from rejoinder.pipeline.options import Options, ReplyRequest


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """The settings of one reply.

    words: given words to speak verbatim, "" if the language model writes them.
    is_filler: whether these words only fill a silence.
    speaks: False for a reply in text only.
    tools: the tools that it may call.
    max_tokens: as in ``Options``.
    max_seconds: seconds of speech after which no clause begins, 0 for no limit.
    holds_audio, context_wait_s, apology, cut_apology: as in ``Options``.
    """

    words: str = ""
    speaks: bool = True
    tools: Tools = NO_TOOLS
    max_tokens: int = 0
    max_seconds: float = 0.0
    holds_audio: bool = False
    is_filler: bool = False
    context_wait_s: float = 0.5
    apology: str = ""
    cut_apology: str = ""

    @property
    def needs_words(self) -> bool:
        """Whether an answer to the user without words is a fault: then an apology is spoken."""
        return self.speaks and bool(self.apology)


def settings_for(request: ReplyRequest, options: Options) -> ReplySettings:
    """Return the settings of the reply to a request in a session with these options."""
    return ReplySettings(
        request.words,
        options.speaks if request.speaks is None else request.speaks,
        options.tools if request.tools is None else request.tools,
        options.max_tokens if request.max_tokens is None else request.max_tokens,
        options.max_reply_s,
        options.holds_audio,
        request.is_filler,
        options.context_wait_s,
        options.apology,
        options.cut_apology,
    )
