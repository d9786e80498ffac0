"""Removes what a model server's error quotes of the request: callers' words, which may not reach the log."""

from __future__ import annotations

import re
from typing import Any

QUOTING_FIELDS = ("input", "ctx")
"""Fields of a validation error that hold parts of the request.

https://docs.pydantic.dev/latest/errors/errors/; FastAPI, and so vLLM and Triton's front end, send them.
"""
QUOTED = re.compile(r"""["'](?:input|ctx)["']\s?:""")
"""Where such a field begins in a text. It may hold anything, so the text is cut there."""


def without_quotes(detail: Any) -> Any:
    """Return the ``detail`` of an error without the fields that quote the request."""
    if isinstance(detail, list):
        return [without_quotes(one) for one in detail]
    if isinstance(detail, dict):
        return {name: value for name, value in detail.items() if name not in QUOTING_FIELDS}
    return detail


def cut_before_quotes(text: str) -> str:
    """Return a text up to where it quotes the request."""
    found = QUOTED.search(text)
    return text if found is None else text[: found.start()].rstrip(" ,")


def text_of(error: BaseException) -> str:
    """Return the text of an error. The openai package puts the whole body of the answer into it."""
    return cut_before_quotes(str(error))
