"""Prepares what the first calls need at once: greetings, apologies, fillers, and a prompt that was read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import History, ModelError, Models, Options, Tools
from rejoinder.pipeline.replying.prompt_warmer import read_prompt
from rejoinder.pipeline.replying.text.clauses import clauses_of

log = logging.getLogger(__name__)


async def read_first_prompt(models: Models, options: Options, tools: Tools) -> None:
    """Let the language model read the prompt with which each call begins.

    Without that, calls that begin together on a new server all read it at the same time. tools: the agent's.
    Where it fails, only speed is lost. Cancelling stops it.
    """
    try:
        await read_prompt(models.llm, History.of(options, models.llm).messages(), tools)
    except ModelError as error:
        log.debug("reading the first prompt failed: %s", error)


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
