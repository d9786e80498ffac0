"""Greetings, fillers and apologies in advance: each voice synthesises them, and keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import Models, Options
from rejoinder.pipeline.engines.deadline import SPARE_SECONDS, Deadline, current
from rejoinder.pipeline.replying.text.clauses import clauses_of


async def rehearsed(
    models: Models, greeting: str, agent: Agent[Any, Any] | None, apologies: Sequence[str] = ()
) -> Models:
    """Return the models with a voice that keeps the greeting and the agent's phrases, synthesised already.

    greeting: that of the settings. agent: None for none; its greeting comes first. apologies: kept, too, once
    ``rehearse_apologies`` has synthesised them. Cancelling stops it.
    """
    if agent is None and not greeting and not any(apologies):
        return models
    voice = models.tts if isinstance(models.tts, PhraseVoice) else PhraseVoice(models.tts)
    if agent is None:
        await voice.rehearse(_phrases(greeting, ()))
    else:
        await voice.rehearse(_phrases(agent.greeting or greeting, agent.fillers))
    return replace(models, tts=voice)


async def rehearse_apologies(models: Models, options: Options, *others: str) -> None:
    """Synthesise the apologies, which are needed when something else fails. Cancelling stops it.

    others: such as the goodbye in calls that the end of the server cuts off. They come after the server is
    ready, because a call that needs them within the first second is rare.
    """
    if isinstance(models.tts, PhraseVoice):
        current.set(Deadline(SPARE_SECONDS))  # calls go first
        words = (options.apology, options.cut_apology, *others)
        await models.tts.rehearse([clause for each in words for clause in clauses_of(each)])


def learn(models: Models, call: Call[Any, Any]) -> None:
    """Let the voice of a call keep what ``on_call`` made it say, once it has been said."""
    if isinstance(models.tts, PhraseVoice):
        models.tts.learn(_phrases(call.greeting, call.fillers))


def _phrases(greeting: str, fillers: Sequence[str]) -> Iterable[str]:
    return [*clauses_of(greeting), *fillers]
