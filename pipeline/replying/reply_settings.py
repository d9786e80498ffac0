"""The settings of one reply, complete: its request's, and the session's where the request has none."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.guarding.guard import Guard
from rejoinder.pipeline.interfaces import NO_TOOLS, Tools
from rejoinder.pipeline.options import CONTEXT_WAIT_S, Options, ReplyRequest


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """The settings of one reply.

    words: given words to speak verbatim, "" if the language model writes them.
    speaks: False for a reply in text only.
    tools: the tools that it may call.
    max_tokens: as in ``Options``.
    max_seconds: seconds of speech after which no clause begins, 0 for no limit.
    holds_audio, context_wait_s, apology, cut_apology: as in ``Options``.
    audio: a recording of ``words``, None where the voice speaks them.
    guard: what its clauses must pass, None for nothing. Given words pass nothing.
    key: as in ``Options``.
    failure: as in ``ReplyRequest``.
    """

    words: str = ""
    speaks: bool = True
    tools: Tools = NO_TOOLS
    max_tokens: int = 0
    max_seconds: float = 0.0
    holds_audio: bool = False
    audio: AudioChunk | None = None
    context_wait_s: float = CONTEXT_WAIT_S
    apology: str = ""
    cut_apology: str = ""
    guard: Guard | None = None
    key: str = ""
    failure: ModelError | None = None


def settings_for(request: ReplyRequest, options: Options) -> ReplySettings:
    """Return the settings of the reply to a request in a session with these options."""
    return ReplySettings(
        request.words,
        options.speaks if request.speaks is None else request.speaks,
        options.tools if request.tools is None else request.tools,
        options.max_tokens if request.max_tokens is None else request.max_tokens,
        options.max_reply_s,
        options.holds_audio,
        request.audio,
        options.context_wait_s,
        options.apology if request.remembered else "",
        options.cut_apology if request.remembered else "",
        None if request.words else options.guard,
        options.key,
        request.failure,
    )
