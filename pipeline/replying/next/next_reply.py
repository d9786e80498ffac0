"""The reply that is wanted next, after the user's turn or after the current reply."""

from __future__ import annotations

from rejoinder.pipeline.options import ReplyRequest


class NextReply:
    """Remembers why another reply is wanted.

    It is *requested* if the client's request waits for the end of the user's turn. It is *owed* if the user's
    words wait for the end of a reply that may not be interrupted.
    """

    def __init__(self) -> None:
        self._request: ReplyRequest | None = None
        self._owed = False

    @property
    def requested(self) -> bool:
        """Whether a request waits for the end of the user's turn."""
        return self._request is not None

    @property
    def owed(self) -> bool:
        """Whether words of the user wait for an answer."""
        return self._owed

    @property
    def is_wanted(self) -> bool:
        """Whether another reply is requested or owed."""
        return self.requested or self._owed

    def request(self, request: ReplyRequest) -> None:
        """Keep the request until the end of the user's turn; it replaces an earlier one."""
        self._request = request

    def owe(self, is_owed: bool) -> None:
        """Record whether the words that the user said over the current reply want an answer."""
        self._owed = is_owed

    def take_request(self) -> ReplyRequest:
        """Return the request that waits, and forget it; a plain one if none waits."""
        request, self._request = self._request or ReplyRequest(), None
        return request

    def forget(self) -> None:
        """Forget what was requested and owed."""
        self._request, self._owed = None, False
