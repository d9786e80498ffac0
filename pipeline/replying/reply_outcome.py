"""How a reply ends: complete, cut short by a limit, cancelled or failed."""

from __future__ import annotations


class ReplyOutcome:
    """The end of one reply. It ends once; then its ReplyDone is emitted.

        from     verb      to
        -------  --------  ------------------------------------------
        running  finish    completed, or incomplete after ``shorten`` or ``refuse``
        running  fail      failed
        running  cancel    cancelled

    After the end, these verbs raise RuntimeError.
    """

    def __init__(self) -> None:
        self._status = ""
        self._error: BaseException | None = None
        self._shortened = False
        self._interrupted = False
        self._excused: Exception | None = None
        self._refused = ""

    @property
    def status(self) -> str:
        """The status of ReplyDone: completed, incomplete, cancelled or failed; "" while the reply runs."""
        return self._status

    @property
    def ended(self) -> bool:
        """Whether the reply has ended. Audio that was sent may still play."""
        return self._status != ""

    @property
    def failed(self) -> bool:
        """Whether an error ended the reply."""
        return self._status == "failed"

    @property
    def error(self) -> BaseException | None:
        """The error of a failed reply, None otherwise."""
        return self._error

    @property
    def excused(self) -> Exception | None:
        """The language model's error for which an apology was spoken, None without one."""
        return self._excused

    @property
    def broken_off(self) -> bool:
        """Whether an error ended the reply in the middle of its words."""
        return self.failed and self._excused is None

    @property
    def interrupted(self) -> bool:
        """Whether the user's speech stopped the reply, or its audio after its end."""
        return self._interrupted

    @property
    def refused(self) -> str:
        """Why a guard refused a clause of the reply, "" if none did."""
        return self._refused

    def refuse(self, reason: str) -> None:
        """Record that a guard refused a clause, which ended the reply."""
        self._refused = reason

    def shorten(self) -> None:
        """Record that a limit of tokens or seconds cut the reply short. After the end it has no effect."""
        self._shortened = True

    def finish(self) -> None:
        """End the reply: all of it was sent."""
        self._end("incomplete" if self._shortened or self._refused else "completed")

    def fail(self, error: BaseException) -> None:
        """End the reply: a model failed, or its request was refused."""
        self._end("failed")
        self._error = error

    def cancel(self) -> None:
        """End the reply: it was stopped."""
        self._end("cancelled")

    def end(self, error: BaseException | None) -> None:
        """``fail`` with this error, or ``finish`` without one."""
        if error is None:
            self.finish()
        else:
            self.fail(error)

    def excuse(self, error: Exception) -> None:
        """Record that an apology for this error takes the place of the words that are missing."""
        self._excused = error

    def interrupt(self) -> None:
        """Record that the user's speech stops the reply; ``cancel`` ends it if it still runs."""
        self._interrupted = True

    def _end(self, status: str) -> None:
        if self.ended:
            raise RuntimeError(f"the reply is {self._status}: it cannot become {status}")
        self._status = status
