"""Documents that a carrier fetches from this server, each at a URL that cannot be guessed."""

from __future__ import annotations

import secrets
from collections import OrderedDict

KEPT_S = 120.0
"""Seconds for which a document is kept: the carrier fetches it when the person it calls answers."""
MOST = 200
"""Most documents that are kept; the oldest are dropped first."""
DOCUMENTS_PATH = "/v1/phone/documents"
"""The path below which the server has them."""
PLIVO_ANSWER = "/v1/phone/plivo"
"""The path of the XML that connects a call of Plivo with the agent."""

Document = str | bytes
"""XML as text, or audio as a WAV file."""


class Documents:
    """The documents of a server. Times are in seconds, of any clock that only rises.

    public_url: the server's address as carriers reach it, "" if it is unknown.
    """

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url.rstrip("/")
        self._kept: OrderedDict[str, tuple[float, Document]] = OrderedDict()

    def publish(self, document: Document, now: float) -> str:
        """Keep a document; return its URL, "" where no carrier could fetch it."""
        if not self._public_url:
            return ""
        name = secrets.token_urlsafe(24)
        self._kept[name] = (now + KEPT_S, document)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return f"{self._public_url}{DOCUMENTS_PATH}/{name}"

    def get(self, name: str, now: float) -> Document | None:
        """Return a document, None if there is none of this name, or no more."""
        until, document = self._kept.get(name, (0.0, None))
        return document if until > now else None
