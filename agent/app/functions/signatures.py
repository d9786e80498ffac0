"""Checks that hooks can be called, when they are decorated and not only in a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rejoinder.agent.app.functions.places import described


def check_hook(hook: Callable[..., Any], kind: str, *parameters: str) -> None:
    """Raise TypeError, with a sentence, if a hook cannot be called with these parameters.

    kind: the decorator's name, such as "on_turn". A function whose signature cannot be read passes.
    """
    wanted = ", ".join(parameters)
    if not callable(hook):
        raise TypeError(f"{kind} needs a function of ({wanted}), not {type(hook).__name__}")
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise TypeError(f"the {kind} hook {described(hook)} has yield in it: a hook is called once")
    try:
        signature = inspect.signature(hook)
    except ValueError:  # a function in C
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        name = getattr(hook, "__name__", "hook")
        raise TypeError(
            f"the {kind} hook {described(hook)} takes {_taken(signature)}, and it is called with "
            f"{len(parameters)} ({wanted}): write def {name}({wanted})"
        ) from None


def _taken(signature: inspect.Signature) -> str:
    """Return the number of a function's parameters, in words."""
    names = [one.name for one in signature.parameters.values()]
    if not names:
        return "no parameters"
    return f"{len(names)} parameter{'s' * (len(names) > 1)} ({', '.join(names)})"
