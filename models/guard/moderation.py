"""A judge that asks the moderation endpoint of an OpenAI-compatible server."""

from __future__ import annotations

from typing import Any

from rejoinder.models.hints import require
from rejoinder.models.llm.addresses import server_address, without_secrets
from rejoinder.models.llm.openai import NO_KEY, REASON_CHARACTERS, connected
from rejoinder.pipeline.errors import ModelError

MODERATION_SECONDS = 5.0
"""Longest wait for an answer, whatever the guard's own limit."""


class Moderation:
    """Asks a server about each text: ``POST /v1/moderations``.

    One object serves all calls. url: the base URL, up to and including ``/v1``. model: "" for the server's
    own. key: sent as a bearer token.

    Source: https://platform.openai.com/docs/api-reference/moderations
    """

    def __init__(self, url: str, model: str = "", key: str = "") -> None:
        require("moderation", ["openai"], "openai")
        self.name = f"moderation:{without_secrets(url)}"
        self._url, self._model, self._key = url, model, key or NO_KEY
        self._client: Any = None

    async def __call__(self, text: str) -> str:
        """Return the categories of a flagged text, "" for one that is not flagged.

        Raises ModelError if the server is down, refuses the request, or answers in another form. Cancelling
        closes the request.
        """
        if self._client is None:
            self._client = connected(self._url, self._key, MODERATION_SECONDS)
        try:
            fields = {"model": self._model} if self._model else {}
            answer = await self._client.moderations.create(input=text, **fields)
            if not isinstance(answer.results, list) or len(answer.results) != 1:
                raise TypeError("the answer has no list results with one entry")
            (result,) = answer.results
            flagged, categories = result.flagged, result.categories
            if not isinstance(flagged, bool):
                raise TypeError(f"flagged is {flagged!r:.20}")
            if not flagged:
                return ""
            given = categories if isinstance(categories, dict) else categories.model_dump(by_alias=True)
        except Exception as error:
            raise ModelError(self.name, self._reason(error)) from error
        named = sorted(name for name, found in given.items() if found is True)
        return ", ".join(named)[:REASON_CHARACTERS] or "flagged"

    async def aclose(self) -> None:
        """Close the connections; the next text opens new ones. Cancelling may leave some open."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _reason(self, error: Exception) -> str:
        """Return why a request failed: not by the message of a server, which may quote the words."""
        if (status := getattr(error, "status_code", None)) is not None:
            return f"HTTP {status}"
        text = " ".join(str(error).split()) or type(error).__name__
        return text.replace(self._key, "(the key)")[:REASON_CHARACTERS]


def moderation(spec: str, key: str = "") -> Moderation:
    """Return the judge of a spec such as ``openai:https://HOST/v1#MODEL``; the model may be left out.

    Raises ModelError for another spec, and if the package of the client is missing.
    """
    prefix, _, rest = spec.partition(":")
    if prefix != "openai":
        raise ModelError("moderation", f"write openai:http://HOST/v1#MODEL, not {spec!r}")
    url, model = server_address(rest, "moderation")
    return Moderation(url, model, key)
