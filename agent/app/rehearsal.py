"""Synthesises greetings, apologies and fillers in advance, because they are needed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import Models, Options
from rejoinder.pipeline.replying.text.clauses import clauses_of


async def rehearsed(models: Models, options: Options, fillers: Sequence[str]) -> Models:
    """Return the models with a voice that has synthesised greeting, apologies, refusal and fillers already.

    Cancelling stops that.
    """
    voice = models.tts if isinstance(models.tts, PhraseVoice) else PhraseVoice(models.tts)
    refusal = options.guard.say if options.guard else ""
    sentences = (options.greeting, options.apology, options.cut_apology, refusal)
    clauses = [clause for sentence in sentences for clause in clauses_of(sentence)]
    await voice.rehearse([*clauses, *fillers])
    return replace(models, tts=voice)


def learn(models: Models, greeting: str) -> None:
    """Let the voice keep a greeting once it has been said: that of an ``on_call`` hook."""
    if isinstance(models.tts, PhraseVoice):
        models.tts.learn(clauses_of(greeting))
