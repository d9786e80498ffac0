"""``rejoinder cache``: count or delete the cached answers, and make some in advance."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
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
from rejoinder.agent.server.keys import hashes_of
from rejoinder.agent.server.operating.key_file import all_keys
from rejoinder.models.caching.cache import SemanticCache
from rejoinder.models.caching.store import AnswerStore
from rejoinder.models.loading import open_models
from rejoinder.models.stores import SQLITE_URL
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
        asyncio.run(_fill(settings, load_agent(agent) if agent else None, read_questions(questions)))
    except Exception as error:  # those of the store, too
        complain(error)
        raise typer.Exit(1) from error


async def _fill(settings: Settings, agent: Agent | None, questions: Mapping[str, str]) -> None:
    options, counted = _options(settings, agent), Counter[str]()
    opened = open_models(settings.specs(), settings.threads(), placement=settings.placement())
    async with AsyncExitStack() as stack:
        if options.guard:
            stack.push_async_callback(options.guard.aclose)
        models = await stack.enter_async_context(opened)
        filled = await stack.enter_async_context(_opened(settings).running())
        async for words, fate in fill_with(models, options, filled, _tenants(settings), questions):
            counted[fate] += 1
            if fate != STORED:
                typer.echo(f"{words}: {fate}", err=True)
    counts = ", ".join(f"{count} {fate}" for fate, count in counted.items())
    typer.echo(f"{len(questions)} questions: {counts or 'none'}")


def _options(settings: Settings, agent: Agent | None) -> Options:
    """Return the options of the server's calls. Raises ConfigError where none of their answers is cached."""
    if agent and (agent.tools or agent.hooks.context or agent.hooks.guard):
        raise ConfigError("no answer of this agent is cached: it has tools, or a guard or context function")
    if "{time}" in ((agent and agent.instructions) or settings.instructions):
        raise ConfigError("the instructions have {time}: no answer would be found after a minute")
    options = replace(settings.options(), guard=open_guard(settings))
    options = AgentHost(agent).options(options) if agent else options
    if settings.recording == "always" and settings.recording_announcement:
        return replace(options, greeting=f"{settings.recording_announcement} {options.greeting}")
    return options


def _tenants(settings: Settings) -> list[str]:
    owners = hashes_of(all_keys(settings))
    without_key = not owners or settings.audiosocket_port or settings.twilio_auth_token.get_secret_value()
    return [*owners, ""] if without_key else owners


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
