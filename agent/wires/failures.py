"""Error messages for callers: the one place where errors become such messages.

A caller gets a code and a plain sentence. The details, such as a server's address, a model's name or Python's
own message, go to the log, beside the caller's identifier of the call.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.logs import one_line
from rejoinder.pipeline import CallOver, ModelError, Overloaded, PipelineError, ProtocolError

log = logging.getLogger(__name__)

SENTENCES = {
    "model_error": "The {role} failed.",
    "model_timeout": "The {role} did not answer in time.",
    "context_length_exceeded": "The conversation and its instructions are too long for the {role}.",
}
"""Message for a model's error, by its code. ``role`` names the model."""
BUSY_MESSAGE = "Too many callers want an answer at this moment: try again in a few seconds."
"""Message for callers while too many replies are requested."""
BROKEN = "Something went wrong in the server."
"""Message for callers after an error of the server itself."""
NO_CALLS = (
    "the language model of this server cannot call tools: start it with one that can, "
    "such as --llm openai:http://HOST/v1#MODEL or --llm vllm:Qwen/Qwen3-8B"
)
"""Error message where the language model cannot call tools."""
MAX_MESSAGE = 500
"""Most characters of an error's message: it may quote what the client sent."""
SERVER_CODES = frozenset(("model_error", "model_timeout", "overloaded", "server_error"))
"""Error codes for faults of the server. All others are for faults in the client's messages."""
SHUTTING_DOWN = "the server is shutting down"
"""Reason of calls and requests that end with the server."""
ENDED = "the language model cannot answer any more: its engine has ended"
"""Message for callers after the engine of the language model has ended."""
MODEL_FAILS = "the {role} does not work at this moment: the log says why"
"""Message for callers while all requests to a model on this machine fail. ``role`` names the model."""


class Departed(PipelineError):
    """The server ends, and the call with it."""


class Unanswered(PipelineError):
    """The agent cannot answer a call any more. The message is for callers."""


class Stuck(PipelineError):
    """The pipeline of a call shows no sign of life. The message is for callers."""


@dataclass(frozen=True, slots=True)
class PublicError:
    """An error as callers see it. ours: whether the server is at fault, and not the client's message."""

    code: str
    message: str
    ours: bool = True


def public_error(error: BaseException) -> PublicError:
    """Return an error as callers see it.

    It has the error's own message only where that is written for callers.
    """
    match error:
        case ProtocolError():
            return PublicError(error.code or "", str(error), ours=False)
        case CallOver():
            return PublicError("session_expired", str(error))
        case Overloaded():
            return PublicError("overloaded", BUSY_MESSAGE if error.adapter else str(error))
        case Unanswered() | Stuck():
            return PublicError("server_error", str(error))
        case ModelError(code="context_length_exceeded"):
            return PublicError(error.code, _sentence(error), ours=False)
        case ModelError():
            return PublicError(error.code, _sentence(error))
    return PublicError("server_error", BROKEN)


def reported(whose: str, what: str, error: BaseException) -> PublicError:
    """Return an error as callers see it, and log it in full.

    whose: the call or request, with its client's identifier. what: what the error has ended.
    """
    expected = isinstance(error, PipelineError)  # its message is enough: no traceback
    detail = one_line(str(error) or type(error).__name__)
    level = logging.WARNING if expected else logging.ERROR
    log.log(level, "%s: %s: %s", one_line(whose), what, detail, exc_info=None if expected else error)
    return public_error(error)


def _sentence(error: ModelError) -> str:
    return SENTENCES.get(error.code, SENTENCES["model_error"]).format(role=error.role or "model")


def kind_of(code: str) -> str:
    """Return the type of an error with this code."""
    return "server_error" if code in SERVER_CODES else "invalid_request_error"


def error_body(message: str, kind: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's shape, which events and HTTP responses share."""
    return {"type": kind, "code": code, "message": message[:MAX_MESSAGE], "param": param}
