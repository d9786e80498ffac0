"""The group of the command line's commands. It imports the larger groups only when they are called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

COMMAND_ORDER = (
    "serve",
    "talk",
    "chat",
    "simulate",
    "ask",
    "demo",
    "doctor",
    "models",
    "key",
    "calls",
    "recordings",
    "cache",
    "profile",
    "bench",
    "plan",
    "deploy",
)
"""The order in which help lists the commands: what a new user needs comes first."""
GROUP_MODULES = {
    "bench": "rejoinder.agent.cli.bench.app",
    "models": "rejoinder.agent.cli.weights",
    "recordings": "rejoinder.agent.cli.recordings",
    "cache": "rejoinder.agent.cli.cache",
}
"""The groups that are imported when they are called, because they import the server or the registry."""


class Commands(TyperGroup):
    """The group of commands, in ``COMMAND_ORDER``. A group in ``GROUP_MODULES`` is empty until ``load``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._loaded: set[str] = set()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in ``COMMAND_ORDER``."""
        return sorted(super().list_commands(ctx), key=COMMAND_ORDER.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command that the arguments call, and the arguments for it."""
        self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Import the group of this name once, if it is one of ``GROUP_MODULES``."""
        if name in GROUP_MODULES and name not in self._loaded:
            self._loaded.add(name)
            help_ = self.commands[name].help
            group = get_group(import_module(GROUP_MODULES[name]).app)
            group.name, group.help = name, help_
            self.commands[name] = group


def loaded(app: typer.Typer) -> Commands:
    """Return the whole tree of commands, with all groups imported."""
    group = get_group(app)
    assert isinstance(group, Commands)
    for name in GROUP_MODULES:
        group.load(name)
    return group
