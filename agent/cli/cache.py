"""``rejoinder cache``: count or delete the cached answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.filesize import decimal

from rejoinder.agent.cli.options import ConfigOption
from rejoinder.agent.cli.views.consoles import complain
from rejoinder.agent.config import ConfigError, load
from rejoinder.agent.opening import open_cache
from rejoinder.models.caching.opening import SQLITE_URL
from rejoinder.models.caching.store import AnswerStore

app = typer.Typer(no_args_is_help=True)
Result = TypeVar("Result")
CacheOption = Annotated[
    str | None, typer.Option("--answer-cache", help="as sqlite:PATH; default: the setting")
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


def _ask(cache: str | None, config: Path | None, ask: Callable[[AnswerStore], Awaitable[Result]]) -> Result:
    try:
        settings = load({"answer_cache": cache}, config)[0]
        path = settings.answer_cache.removeprefix(SQLITE_URL)
        if path != settings.answer_cache and path and not Path(path).expanduser().exists():
            raise ConfigError(f"there is no file {path}")
        if (opened := open_cache(settings)) is None:
            raise ConfigError("answer_cache is not set: set it, or name the cache with --answer-cache")
        return asyncio.run(_answer(opened.store, ask))
    except Exception as error:  # those of SQLite, too
        complain(error)
        raise typer.Exit(1) from error


async def _answer(store: AnswerStore, ask: Callable[[AnswerStore], Awaitable[Result]]) -> Result:
    try:
        return await ask(store)
    finally:
        await store.aclose()
