"""Every error the pipeline raises on purpose.

    PipelineError
    ├── ModelError      a model failed; names the adapter, chains the cause
    ├── Overloaded      a bounded place is full and may not wait
    └── ProtocolError   a peer said something its protocol does not allow

Three places catch ``Exception``: the turn boundary (log, tell the client, go on with the next turn), the
session boundary (close the socket with a code and a reason) and an engine's thread (hand it to the callers).
"""


class PipelineError(Exception):
    """Something the pipeline can name went wrong."""


class ModelError(PipelineError):
    """A model could not be loaded or could not answer; ``adapter`` says which one."""

    def __init__(self, adapter: str, message: str) -> None:
        super().__init__(f"{adapter}: {message}")
        self.adapter = adapter


class Overloaded(PipelineError):
    """A bounded place is full, and its owner may not wait for room."""


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


def first_error(error: BaseException) -> BaseException:
    """Return the error inside the exception groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
