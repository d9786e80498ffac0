"""Finds the agent that a command names, such as ``my_agent.py``, ``my_agent.py:agent`` or ``my_agent``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.functions.mistakes import broken
from rejoinder.agent.config import ConfigError


def load_agent(named: str, again: bool = False) -> Agent:
    """Return the agent of a file or a module.

    named: a Python file or a module, with ``:NAME`` behind it where it has several agents. again: whether to
    read its files anew, with those of the modules beside it. Of several agents, the one is taken to which no
    other one can hand a call. Raises ConfigError if there is no such agent, and BrokenAgent if a file raises
    an exception, with its line.
    """
    place, colon, name = named.rpartition(":")
    if not colon or "/" in name or "\\" in name:  # the colon of a Windows drive is not ours
        place, name = named, ""
    if again:
        _forget(folder_of(named))
    try:
        module = _file(Path(place)) if place.endswith(".py") else _module(place)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise broken(f"{place} cannot be loaded", error) from error
    if name:
        found = getattr(module, name, None)
        if found is None:
            raise ConfigError(f"{place} has no name {name}")
        if not isinstance(found, Agent):
            raise ConfigError(f"{named} is not an Agent: it is of type {type(found).__name__}")
        return found
    agents = {name: one for name, one in vars(module).items() if isinstance(one, Agent)}
    all_ = set(agents.values())
    first = [one for one in all_ if not any(one in other.reachable[1:] for other in all_)]
    if len(first) == 1:
        return first[0]
    if not agents:
        raise ConfigError(f"{place} has no agent: assign one at the top level, such as agent = Agent(...)")
    names = " or ".join(f"{place}:{name}" for name in agents)
    raise ConfigError(f"{place} has several agents: choose {names}")


def folder_of(named: str) -> Path:
    """Return the folder of an agent's file, or the current folder for a module."""
    place = named.rpartition(":")[0] or named
    return Path(place).resolve().parent if place.endswith(".py") else Path.cwd()


def _forget(folder: Path) -> None:
    """Drop the modules of a folder, so that they are imported anew. Installed packages stay."""
    importlib.invalidate_caches()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and name != "__main__" and Path(file).is_relative_to(folder) and "site-packages" not in file:
            del sys.modules[name]


def _file(path: Path) -> ModuleType:
    """Import a file as a module of its own name; modules beside it can be imported, too."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # annotations are looked up there
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    """Import a module from the current folder or the installed packages."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {name}; a file needs its ending: {name}.py") from None
        raise
