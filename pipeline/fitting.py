"""Checks that a model implements its protocol, before it is used."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType
from typing import Any, get_origin

from rejoinder.pipeline import interfaces
from rejoinder.pipeline.errors import ModelError


@dataclass(frozen=True, slots=True)
class ModelRole:
    """A role of a model: its protocol, and the optional protocols it may implement too."""

    name: str
    protocol: type
    optional: tuple[type, ...] = ()


PARTS = {
    "vad": ModelRole("voice activity detector", interfaces.Vad),
    "vad stream": ModelRole(
        "voice activity detector's stream", interfaces.VadStream, (interfaces.SharedVadStream,)
    ),
    "turn": ModelRole("turn model", interfaces.TurnModel),
    "stt": ModelRole("speech recogniser", interfaces.Stt),
    "stt stream": ModelRole("speech recogniser's stream", interfaces.SttStream),
    "llm": ModelRole(
        "language model",
        interfaces.Llm,
        (
            interfaces.ToolLlm,
            interfaces.ToolWarmLlm,
            interfaces.MonitoredLlm,
            interfaces.TextLlm,
            interfaces.TokenLlm,
            interfaces.ContextLlm,
        ),
    ),
    "tts": ModelRole("voice", interfaces.Tts),
}
"""What a model has to fit, by the name of its part."""


def check_fits(role: str, model: object, adapter: str = "") -> None:
    """Raise ModelError if ``model`` does not implement the protocol of ``role``, a key of ``PARTS``.

    The error names the class, the method, its expected signature and the file of the protocol. The check
    calls no method; it inspects the signatures. Methods that it cannot inspect, such as compiled code, pass.
    adapter: name of the adapter in the error, by default the class.
    """
    part = PARTS[role]
    for protocol in (part.protocol, *(one for one in part.optional if isinstance(model, one))):
        for name, declared in _members(protocol).items():
            if not (wrong := _misfit(model, name, declared)):
                continue
            kind = model if isinstance(model, type) else type(model)
            if kind is model:
                wrong = f"it is the class: give an instance of it, {kind.__name__}()"
            called = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
            raise ModelError(
                adapter or kind.__name__,
                f"{called} does not fit as the {part.name} ({role}): {wrong}; needed: "
                f"{_written(name, declared)}; see {protocol.__name__} in rejoinder/pipeline/interfaces.py",
            )


@cache
def _members(protocol: type) -> dict[str, Any]:
    """Return the functions and properties that a protocol declares."""
    return {
        name: member
        for name, member in vars(protocol).items()
        if isinstance(member, FunctionType | property) and not name.startswith("_")
    }


def _misfit(model: object, name: str, declared: Any) -> str:
    """Return what is wrong with one member of a model, "" if it fits."""
    if isinstance(declared, property):
        static = inspect.getattr_static(model, name, None)
        return f"{name} is a method and not a property" if inspect.isroutine(static) else ""
    method = getattr(model, name, None)
    if method is None:
        return f"it has no method {name}"
    if not callable(method):
        return f"{name} is a {type(method).__name__} and not a method"
    if (kind := _kind(method)) and not _is_kind(method, _returns(declared)):
        return f"{name} is {kind}"
    try:
        inspect.signature(method).bind(*_arguments(declared)[0], **_arguments(declared)[1])
    except TypeError as error:
        return f"{name} cannot be called so: {error}"
    except ValueError:
        return ""  # Python knows no signature of it
    return ""


@cache
def _arguments(declared: FunctionType) -> tuple[tuple[None, ...], dict[str, None]]:
    """Return placeholders for the positional and the keyword-only arguments of a method."""
    _, *parameters = inspect.signature(declared).parameters.values()
    named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    return (None,) * (len(parameters) - len(named)), dict.fromkeys(named)


def _kind(method: Any) -> str:
    """Return the kind of a method in words, "" if it is unknown."""
    for is_one, kind in KINDS.items():
        if is_one(method):
            return kind
    return ""


def _is_function(method: Any) -> bool:
    while isinstance(method, partial):
        method = method.func
    return inspect.isfunction(method) or inspect.ismethod(method)


KINDS: dict[Callable[[Any], bool], str] = {
    inspect.isasyncgenfunction: "an async generator",
    inspect.iscoroutinefunction: "an async function without yield",
    inspect.isgeneratorfunction: "a generator without async",
    _is_function: "a plain function",
}
"""Kinds of functions, with the words for each in an error message."""


def _is_kind(method: Any, wanted: type | None) -> bool:
    """Return whether a call of the method returns an AsyncIterable, an Awaitable or neither, as wanted."""
    methods = (method, inspect.unwrap(method))
    if wanted is AsyncIterable:
        written = any(map(inspect.isasyncgenfunction, methods))
    elif wanted is Awaitable:
        written = any(map(inspect.iscoroutinefunction, methods))
    else:
        return not (inspect.isasyncgenfunction(method) or inspect.iscoroutinefunction(method))
    return written or (_kind(method) == KINDS[_is_function] and _annotated(method, wanted))


def _annotated(method: Any, wanted: type) -> bool:
    """Return whether the return annotation of a plain function is, or may be, a ``wanted``."""
    try:
        returned = inspect.signature(method, eval_str=True).return_annotation
    except (NameError, ValueError):  # only the type checker imports this name
        return True
    if returned is inspect.Signature.empty:
        return False
    returned = get_origin(returned) or returned
    return returned is Any or not isinstance(returned, type) or issubclass(returned, wanted)


@cache
def _returns(declared: FunctionType) -> type | None:
    """Return the result type of a protocol's method: AsyncIterable, Awaitable, or None for neither."""
    if inspect.iscoroutinefunction(declared):
        return Awaitable
    return AsyncIterable if "AsyncGenerator" in str(declared.__annotations__["return"]) else None


def _written(name: str, declared: Any) -> str:
    """Return the signature of a protocol's member as an implementation writes it."""
    if isinstance(declared, property):
        return f"@property def {name}{_signature(declared.fget)}"
    if _returns(declared) is AsyncIterable:
        return f"async def {name}{_signature(declared)}, with yield"
    return f"{'async ' if _returns(declared) else ''}def {name}{_signature(declared)}"


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")
