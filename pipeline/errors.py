"""The errors that the pipeline raises on purpose.

    PipelineError
    ├── ModelError      a model failed; names the adapter and chains the cause
    ├── Overloaded      a bounded queue is full, and its owner does not wait
    ├── CallOver        the call has reached a limit, such as its longest duration
    └── ProtocolError   a peer sent a message that its protocol does not allow

Five places catch ``Exception``. The boundary of a reply puts the error into ReplyDone, and the next turn goes
on. The boundary of a session closes the socket with a code and a reason. The thread of an engine passes the
error to its callers. Work that is only done ahead drops its error. ``asking`` turns the exceptions of a
foreign adapter into ModelError. Error messages are for operators. ``agent/wires/failures.py``, outside of the
pipeline, chooses the text that callers see.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


class PipelineError(Exception):
    """The base class of all errors that the pipeline raises on purpose."""


class ModelError(PipelineError):
    """A model could not be loaded or could not answer.

    adapter: name of the adapter, for operators.
    code: kind of failure, for callers: ``model_error``, ``model_timeout`` or ``context_length_exceeded``.
    role: purpose of the model, such as "language model"; "" if unknown.
    """

    def __init__(self, adapter: str, message: str, code: str = "model_error") -> None:
        super().__init__(f"{adapter}: {message}")
        self.adapter = adapter
        self.code = code
        self.role = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled, so that it can come from another process."""
        message = str(self).removeprefix(f"{self.adapter}: ")
        return ModelError, (self.adapter, message, self.code), {"role": self.role}


class Overloaded(PipelineError):
    """A bounded queue is full, and its owner does not wait for room.

    adapter: the model whose queue is full; "" if it is not a model's, and then the message is for callers.
    """

    def __init__(self, message: str, adapter: str = "") -> None:
        super().__init__(f"{adapter}: {message}" if adapter else message)
        self.adapter = adapter

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled, so that it can come from another process."""
        return Overloaded, (str(self).removeprefix(f"{self.adapter}: "), self.adapter)


class CallOver(PipelineError):
    """The call has reached a limit: its longest duration, its budget, or the audio that a key may send."""


class HungUp(PipelineError):
    """The caller or the agent has hung up."""


class ProtocolError(PipelineError):
    """A peer sent a message that its protocol does not allow.

    code: error code for the peer, None for none. param: the field that is wrong, None if it is unknown.
    """

    def __init__(self, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@contextmanager
def asking(role: str, model: object = None) -> Iterator[None]:
    """Set ``role`` of a ModelError that leaves the block, such as "language model", if it has none yet.

    model: the model that the block asks. Any other exception then leaves the block as a ModelError, too: an
    adapter of another distribution may raise what it likes.
    """
    try:
        yield
    except ModelError as error:
        error.role = error.role or role
        raise
    except PipelineError:
        raise
    except Exception as error:
        if model is None:
            raise
        log.exception("the %s %s failed in a way of its own", role, type(model).__name__)
        failed = ModelError(type(model).__name__, f"{type(error).__name__}: {error}")
        failed.role = role
        raise failed from error


def first_error(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups, which task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
