"""Synthesises greetings and fillers in advance, because they are needed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import Models
from rejoinder.pipeline.replying.text.clauses import clauses_of


async def rehearsed(models: Models, greeting: str, fillers: Sequence[str]) -> Models:
    """Return the models with a voice that keeps the greeting and the fillers, synthesised already.

    Cancelling stops that.
    """
    voice = models.tts if isinstance(models.tts, PhraseVoice) else PhraseVoice(models.tts)
    await voice.rehearse([*clauses_of(greeting), *fillers])
    return replace(models, tts=voice)


def learn(models: Models, greeting: str) -> None:
    """Let the voice keep a greeting once it has been said: that of an ``on_call`` hook."""
    if isinstance(models.tts, PhraseVoice):
        models.tts.learn(clauses_of(greeting))
