"""Every error the pipeline raises on purpose.

    PipelineError
    ├── ModelError      a model failed; names the adapter, chains the cause
    ├── Overloaded      a bounded place is full and may not wait
    └── ProtocolError   a peer said something its protocol does not allow

Three places catch ``Exception``: the turn boundary (hand it over with the end of the reply, go on with the
next turn), the session boundary (close the socket with a code and a reason) and an engine's thread (hand it
to the callers). What is in an error is for operators; what callers are told of it is said in one place,
outside of the pipeline (``agent/wires/failures.py``).
"""

from collections.abc import Iterator
from contextlib import contextmanager


class PipelineError(Exception):
    """Something the pipeline can name went wrong."""


class ModelError(PipelineError):
    """A model could not be loaded or could not answer.

    adapter: which one, for operators. code: what kind of failure it is, for callers: ``model_error``,
    ``model_timeout`` or ``context_length_exceeded``. role: what the model is for, "" where that is not known.
    """

    def __init__(self, adapter: str, message: str, code: str = "model_error") -> None:
        super().__init__(f"{adapter}: {message}")
        self.adapter = adapter
        self.code = code
        self.role = ""


class Overloaded(PipelineError):
    """A bounded place is full, and its owner may not wait for room.

    adapter: the model whose queue that is, "" where it is none's; then the message is written for callers.
    """

    def __init__(self, message: str, adapter: str = "") -> None:
        super().__init__(f"{adapter}: {message}" if adapter else message)
        self.adapter = adapter


class CallOver(PipelineError):
    """The call has lasted as long as it may."""


class ProtocolError(PipelineError):
    """A peer sent what its protocol does not allow.

    ``code`` and ``param`` are put into the protocol's own error message; ``code`` may be None.
    """

    def __init__(self, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@contextmanager
def asking(role: str) -> Iterator[None]:
    """Note in a ModelError that leaves the block which model failed, such as the "language model"."""
    try:
        yield
    except ModelError as error:
        error.role = error.role or role
        raise


def first_error(error: BaseException) -> BaseException:
    """Return the error inside the exception groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
