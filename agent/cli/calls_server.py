"""Reads the calls of a running server over HTTP, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from rejoinder.models.llm.addresses import is_loopback

CALLS_ANSWER_SECONDS = 15.0
"""Longest wait for an answer and for the next line of a stream, in seconds. A silent
stream sends one every 5 s."""
FINAL_STATUSES = (400, 401, 403, 404)
"""HTTP statuses after which another try is pointless."""


class NotAnswered(Exception):
    """The server refuses the request. final: whether another try is pointless."""

    def __init__(self, reason: str, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the key would go to another server."""

    def redirect_request(self, *given: Any) -> None:
        """Return no request."""


@dataclass(frozen=True, slots=True)
class CallsServer:
    """A server whose calls are read. url: http://HOST:PORT. key: of its setting calls_key, None for none."""

    url: str
    key: str | None

    def open(self, path: str, query: Mapping[str, str]) -> HTTPResponse:
        """Return the answer to a request below /calls/api/. Raises NotAnswered."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        given = urlencode({name: value for name, value in query.items() if value})
        request = Request(f"{self.url.rstrip('/')}/calls/api/{path}?{given}", headers=headers)
        handlers = [ProxyHandler({})] if is_loopback(self.url) else []
        try:
            answer: HTTPResponse = build_opener(_NoRedirect, *handlers).open(
                request, timeout=CALLS_ANSWER_SECONDS
            )
        except HTTPError as error:
            with error:
                raise NotAnswered(_reason(error), error.code in FINAL_STATUSES) from None
        except (OSError, HTTPException) as error:
            raise NotAnswered(f"{self.url} does not answer: {error}", final=False) from None
        return answer

    def ask(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object at a path. Raises NotAnswered."""
        with self.open(path, query) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def follow(self) -> Iterator[dict[str, Any]]:
        """Yield the messages about running calls, until the stream ends. Raises NotAnswered."""
        with self.open("live", {}) as answer:
            try:
                for line in answer:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])
            except (OSError, HTTPException) as error:
                raise NotAnswered(f"the connection was lost: {error}", final=False) from None


def _reason(error: HTTPError) -> str:
    """Return why a request was refused: the server's own sentence, or the status."""
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        hint = ": is calls_page on, and calls_key set for other machines?" if error.code == 404 else ""
        return f"the server answers {error.code}{hint}"
