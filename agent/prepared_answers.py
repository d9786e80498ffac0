"""Answers that are cached before anybody asks: the questions of a file, and what becomes of them."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rejoinder.agent.config import ConfigError
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.pipeline import Models, Options
from rejoinder.pipeline.caching.answers import CacheQuestion
from rejoinder.pipeline.replying.prepared import first_question, prepare

STORED = "stored"
"""What became of a question whose answer is in the cache now."""
KNOWN = "was there"
"""What became of a question whose answer was in the cache already."""
CHANGES = "left out: its answer may change with time"
"""What became of a question that the cache does not take."""
UNFIT = "left out: the answer was cut short, is longer than a minute, or is from a model that stood in"
"""What became of a question whose answer may not be kept."""


def read_questions(file: Path) -> dict[str, str]:
    """Return the questions of a TOML file, each with the words of its answer, "" for the language model's.

    Raises ConfigError for a file that cannot be read, and for one that holds anything else.
    """
    try:
        questions = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', '') or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'{file}: {error}; write "QUESTION" = "ANSWER" in each line') from error
    for words, answer in questions.items():
        if not words.strip() or not isinstance(answer, str):
            raise ConfigError(f'{file}: {words!r} has no answer in quotes: write "QUESTION" = "ANSWER"')
    return questions


async def fill(
    models: Models,
    options: Options,
    cache: SemanticCache,
    tenants: Sequence[str],
    questions: Mapping[str, str],
) -> AsyncIterator[tuple[str, str]]:
    """Store the answers to questions for each tenant; yield each question, and what became of it.

    An answer of the language model is made where a tenant lacks it. One with given words replaces what is
    there. Raises ConfigError where no answer of such calls is cached, PipelineError if a model fails, and the
    errors of the store. Cancelling keeps what is stored.
    """
    options = replace(options, cache=cache.of(""))
    for words, answer in questions.items():
        question = first_question(models, options, words)
        if question is None:
            raise ConfigError(
                "no answer of these calls is cached: it depends on more than the first question"
            )
        yield words, await _fill(models, options, cache, tenants, question, answer)


async def _fill(
    models: Models,
    options: Options,
    cache: SemanticCache,
    tenants: Sequence[str],
    question: CacheQuestion,
    answer: str,
) -> str:
    if cache.key("", question) is None:
        return CHANGES
    lacking = [one for one in tenants if answer or not await cache.holds(one, question)]
    if not lacking:
        return KNOWN
    if (made := await prepare(models, options, question.words, answer)) is None:
        return UNFIT
    for tenant in lacking:
        await cache.put(tenant, question, made)
    return STORED
