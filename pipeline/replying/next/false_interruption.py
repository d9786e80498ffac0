"""The reply that the user's speech stopped, until it is known whether the user wanted to speak."""

from __future__ import annotations

import re
from dataclasses import replace

from rejoinder.pipeline.history import History
from rejoinder.pipeline.options import ReplyRequest
from rejoinder.pipeline.replying.next.position import unheard
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.turns.interruption import is_backchannel

REST_OF_QUESTION = re.compile(r"[^.!?]*\?")
"""The rest of a question."""
GO_ON_CUE = "(The caller made a sound and said nothing. Go on with what you were saying.)"
"""Asks the language model for the rest of a reply that it had not written to its end."""


class FalseInterruption:
    """Lets the agent go on after a turn that was no request: a long cough, laughter, or a slow "mm-hm".

    Such a turn is known only once it is over, when its reply is cancelled. A new reply then says the words
    that were not heard. The history has each word once.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._stopped: Reply | None = None

    def stopped(self, reply: Reply | None) -> None:
        """Record the reply that the user's speech has just stopped; None if it stopped none."""
        self._stopped = reply

    def forget(self) -> None:
        """Do not go on with the stopped reply."""
        self._stopped = None

    def request(self, text: str) -> ReplyRequest | None:
        """Return the request that lets the agent go on; None if the turn wants an answer, or nothing is left.

        text: the words of the turn, "" for none. While a tool runs nothing goes on: the agent tells its
        result anyway.
        """
        reply = self._stopped
        if reply is None or self._history.pending or not is_backchannel(text):
            return None
        settings, outcome, heard = reply.settings, reply.outcome, self._history.heard(reply.id)
        over = outcome.failed or outcome.excused or outcome.refused or outcome.status == "incomplete"
        if over or heard is None or reply.request.prompt is not None:
            return None
        if not settings.speaks or settings.is_filler:
            return None
        written = settings.words or reply.generation.written
        if text and (reply.output.complete or _asks(written or "", heard)):
            return None
        again = replace(reply.request, tag=0)
        if written is None or settings.guard or reply.generation.calls:
            return None if text else replace(again, cue=GO_ON_CUE) if heard else again
        rest = unheard(written, heard)
        return replace(again, words=rest) if rest else None

    def take(self, text: str) -> ReplyRequest | None:
        """Return the request as ``request`` does, and forget the stopped reply.

        If nothing was said in between, the history no longer marks its words as cut off.
        """
        request, reply = self.request(text), self._stopped
        if reply and request and request.words and not text:
            self._history.settle(reply.id, self._history.heard(reply.id) or "", cut=False)
        self.forget()
        return request


def _asks(written: str, heard: str) -> bool:
    """Return whether the user has heard a question, or a part of one: a "yes" is its answer."""
    return "?" in heard or REST_OF_QUESTION.match(unheard(written, heard)) is not None
