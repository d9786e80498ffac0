"""Addresses of OpenAI-compatible servers."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from rejoinder.pipeline.errors import ModelError


def server_address(argument: str, what: str) -> tuple[str, str]:
    """Return the URL and the model of ``http://HOST/v1#MODEL``; "" if the model is missing.

    what: whose address it is, for the message. Raises ModelError for another form; for a URL that cannot be
    read, it shows nothing of it, since a password may be the reason.
    """
    url, _, model = argument.partition("#")
    if not url.startswith(("http://", "https://")):
        raise ModelError(what, f"write openai:http://HOST/v1#MODEL, not {argument!r}")
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError(url)
    except ValueError:
        raise ModelError(
            what,
            "the address cannot be read: write http://HOST/v1 or http://USER:PASSWORD@HOST/v1, with signs "
            "such as / @ : [ in the password as %2F %40 %3A %5B",
        ) from None
    return url, model


def without_secrets(url: str) -> str:
    """Return a URL without credentials, query and fragment, which may contain a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, even one such as "127.example.org"
        return False
