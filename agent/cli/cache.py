"""``rejoinder cache``: count or delete the cached answers, and make some in advance."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.filesize import decimal

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.cli.options import ConfigOption, LlmOption, SttOption, TtsOption
from rejoinder.agent.cli.views.consoles import complain
from rejoinder.agent.config import ConfigError, Settings, load
from rejoinder.agent.opening import open_cache, open_guard
from rejoinder.agent.prepared_answers import STORED, read_questions
from rejoinder.agent.prepared_answers import fill as fill_with
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.models.caching.opening import SQLITE_URL
from rejoinder.models.caching.store import AnswerStore
from rejoinder.models.loading import open_models
from rejoinder.pipeline import Options

app = typer.Typer(no_args_is_help=True)
Result = TypeVar("Result")
CacheOption = Annotated[
    str | None, typer.Option("--answer-cache", help="sqlite:PATH or redis://HOST; default: the setting")
]


@app.command()
def stats(cache: CacheOption = None, config: ConfigOption = None) -> None:
    """Count the cached answers, and their bytes."""
    counted = _ask(cache, config, lambda store: store.stats())
    typer.echo(f"{counted.entries} answers, {decimal(counted.bytes)}")


@app.command()
def purge(cache: CacheOption = None, config: ConfigOption = None) -> None:
    """Delete all cached answers, of all keys."""
    typer.echo(f"deleted {_ask(cache, config, lambda store: store.purge())} answers")


@app.command()
def fill(
    questions: Annotated[Path, typer.Argument(help='TOML file with one "QUESTION" = "ANSWER" in a line')],
    agent: Annotated[str | None, typer.Option(help="your agent, as for `rejoinder serve`")] = None,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    cache: CacheOption = None,
    config: ConfigOption = None,
) -> None:
    """Cache the answers to the questions of a file in advance.

    Start it with the settings, the agent and the models of the server: they are part of the key. An answer of
    "" is that of the language model. Each API key of the settings gets the answers.
    """
    try:
        given = {"answer_cache": cache, "llm": llm, "stt": stt, "tts": tts}
        settings = load(given, config)[0]
        asyncio.run(_fill(settings, agent, read_questions(questions)))
    except Exception as error:  # those of the store, too
        complain(error)
        raise typer.Exit(1) from error


async def _fill(settings: Settings, agent: str | None, questions: Mapping[str, str]) -> None:
    options = replace(settings.options(), guard=open_guard(settings))
    if agent:
        options = _of_agent(load_agent(agent), options)
    tenants = [key.partition(":")[0] for key in settings.api_keys.split()] or [""]
    counted: Counter[str] = Counter()
    opened = open_models(settings.specs(), settings.threads(), placement=settings.placement())
    async with opened as models, _opened(settings).running() as filled:
        async for words, fate in fill_with(models, options, filled, tenants, questions):
            counted[fate] += 1
            if fate != STORED:
                typer.echo(f"{words}: {fate}", err=True)
    counts = ", ".join(f"{count} {fate}" for fate, count in counted.items())
    typer.echo(f"{len(questions)} questions: {counts or 'none'}")


def _of_agent(agent: Agent, options: Options) -> Options:
    hooks = agent.hooks
    if agent.tools or hooks.context or hooks.guard:
        raise ConfigError(
            "no answer of this agent is cached: it has tools, a guard or a context of functions"
        )
    return AgentHost(agent).options(options)


def _opened(settings: Settings) -> SemanticCache:
    if (opened := open_cache(settings)) is None:
        raise ConfigError("answer_cache is not set: set it, or name the cache with --answer-cache")
    return opened


def _ask(cache: str | None, config: Path | None, ask: Callable[[AnswerStore], Awaitable[Result]]) -> Result:
    try:
        settings = load({"answer_cache": cache}, config)[0]
        path = settings.answer_cache.removeprefix(SQLITE_URL)
        if path != settings.answer_cache and path and not Path(path).expanduser().exists():
            raise ConfigError(f"there is no file {path}")
        return asyncio.run(_answer(_opened(settings).store, ask))
    except Exception as error:  # those of SQLite, too
        complain(error)
        raise typer.Exit(1) from error


async def _answer(store: AnswerStore, ask: Callable[[AnswerStore], Awaitable[Result]]) -> Result:
    try:
        return await ask(store)
    finally:
        await store.aclose()
