"""The seed of the models' random choices."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from support import speech

from rejoinder.models.seed import SEED_VARIABLE, seed
from rejoinder.pipeline.errors import ModelError


def spoken(spec: str) -> bytes:
    """Load a voice and return the audio of its first clause."""
    voice = speech.model(spec)

    async def speak() -> bytes:
        async with aclosing(voice.speak("Yes, of course.")) as chunks:
            return b"".join([chunk.pcm async for chunk in chunks])

    said = asyncio.run(speak())
    voice.close()
    return said


@pytest.mark.weights
@pytest.mark.parametrize("spec", ["piper", "hibari"])
def test_voice_with_a_seed_speaks_the_same_samples(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "7")
    first = spoken(spec)
    assert spoken(spec) == first
    monkeypatch.setenv(SEED_VARIABLE, "8")
    assert spoken(spec) != first


@pytest.mark.parametrize(("given", "expected"), [("", None), ("0", 0), ("12", 12)])
def test_seed_is_an_integer_or_unset(
    given: str, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEED_VARIABLE, given)
    assert seed() == expected


def test_other_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "-1")
    with pytest.raises(ModelError, match="REJOINDER_SEED is '-1' and has to be an integer from 0"):
        seed()
