"""Groups of commands. They import the larger commands only when these are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

COMMAND_ORDER = (
    "serve", "talk", "simulate", "eval", "ask", "call", "calls", "recordings", "demo", "doctor", "models",
    "cache", "key", "bench", "plan", "deploy", "export",
)  # fmt: skip
"""The order in which help lists the commands: what a new user needs comes first."""
GROUP_MODULES = {
    "bench": "rejoinder.agent.cli.bench.app",
    "models": "rejoinder.agent.cli.weights",
    "cache": "rejoinder.agent.cli.cache",
    "calls": "rejoinder.agent.cli.calls",
    "eval": "rejoinder.agent.cli.eval",
    "export": "rejoinder.agent.cli.export",
    "recordings": "rejoinder.agent.cli.recordings",
    "simulate": "rejoinder.agent.cli.simulate",
}
"""The groups that are imported when they are called, because they import the client or the registry."""


class LazyGroup(TyperGroup):
    """A group of commands. A command in ``modules`` is empty until ``load``.

    order: names of the commands, as help lists them. modules: name of the module of each lazy command. It has
    a group of commands as ``app``, or a function with the name of the command.
    """

    order: ClassVar[Sequence[str]]
    modules: ClassVar[Mapping[str, str]]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._loaded: set[str] = set()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in their order."""
        return sorted(super().list_commands(ctx), key=self.order.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command that the arguments call, and the arguments for it."""
        self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Import the command of this name once, if it is one of ``modules``."""
        if name in self.modules and name not in self._loaded:
            self._loaded.add(name)
            module, empty = import_module(self.modules[name]), self.commands[name]
            if hasattr(module, "app"):
                self.commands[name] = get_group(module.app)
                self.commands[name].help = empty.help
            else:
                alone = typer.Typer(add_completion=False)
                alone.command(name)(getattr(module, name))
                self.commands[name] = get_command(alone)
            self.commands[name].name = name

    def load_all(self) -> None:
        """Import all commands, and those of the groups among them."""
        for name in self.modules:
            self.load(name)
            inner = self.commands[name]
            if isinstance(inner, LazyGroup):
                inner.load_all()


class Commands(LazyGroup):
    """The commands of ``rejoinder``."""

    order = COMMAND_ORDER
    modules = GROUP_MODULES


def loaded(app: typer.Typer) -> Commands:
    """Return the whole tree of commands, with all of them imported."""
    group = get_group(app)
    assert isinstance(group, Commands)
    group.load_all()
    return group
