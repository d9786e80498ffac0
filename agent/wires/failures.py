"""What callers are told of an error: the one place where errors become words for them.

A caller gets a code and a plain sentence. What is inside the error, such as the address of a server, the name
of a model or Python's own words, goes to the log, beside the id that the caller knows the call by.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rejoinder.agent.logs import one_line
from rejoinder.pipeline import CallOver, ModelError, Overloaded, PipelineError, ProtocolError

log = logging.getLogger(__name__)

SENTENCES = {
    "model_error": "The {role} failed.",
    "model_timeout": "The {role} did not answer in time.",
    "context_length_exceeded": "The conversation and its instructions are too long for the {role}.",
}
"""What is said of a model, by the code of its error."""
BUSY = "Too many callers want an answer at this moment: try again in a few seconds."
BROKEN = "Something went wrong in the server."
ENDED = "the language model cannot answer any more: its engine has ended"


class Unanswered(PipelineError):
    """The agent cannot answer a call any more. Its words are for callers."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller is told. ours: whether the fault is the server's, and not in what the client sent."""

    code: str
    message: str
    ours: bool = True


def told(error: BaseException) -> Told:
    """Return what a caller is told of an error, in its own words only where they are written for callers."""
    match error:
        case ProtocolError():
            return Told(error.code or "", str(error), ours=False)
        case CallOver():
            return Told("session_expired", str(error))
        case Overloaded():
            return Told("overloaded", BUSY if error.adapter else str(error))
        case Unanswered():
            return Told("server_error", str(error))
        case ModelError(code="context_length_exceeded"):
            return Told(error.code, _sentence(error), ours=False)
        case ModelError():
            return Told(error.code, _sentence(error))
    return Told("server_error", BROKEN)


def reported(whose: str, what: str, error: BaseException) -> Told:
    """Return what a caller is told of an error, and write all of it into the log.

    whose: the call or request, with the id that its client knows it by. what: what the error has ended.
    """
    expected = isinstance(error, PipelineError)  # it says all there is to know
    detail = one_line(str(error) or type(error).__name__)
    level = logging.WARNING if expected else logging.ERROR
    log.log(level, "%s: %s: %s", one_line(whose), what, detail, exc_info=None if expected else error)
    return told(error)


def _sentence(error: ModelError) -> str:
    return SENTENCES.get(error.code, SENTENCES["model_error"]).format(role=error.role or "model")
