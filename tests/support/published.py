"""Validates events with the types that openai-python publishes for the Realtime protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from openai.types.realtime import RealtimeServerEvent
from pydantic import Discriminator, TypeAdapter

_EVENTS: TypeAdapter[Any] = TypeAdapter(Annotated[RealtimeServerEvent, Discriminator("type")])


def conforms(answers: Iterable[Any]) -> None:
    """Check each server event among these against its published type; our own begin with ``rejoinder.``."""
    for answer in answers:
        if isinstance(answer, dict) and not answer["type"].startswith("rejoinder."):
            parsed = _EVENTS.validate_python(answer)
            assert parsed.type == answer["type"]
