"""Reads the arguments of a tool from its signature: their names, types, defaults and descriptions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from rejoinder.agent.app.call import Call

GOOD_TYPES = (
    "str, int, float, bool, datetime and date, Literal[...], an Enum, a dataclass, a TypedDict, a pydantic "
    "model, and list, dict and Optional of these"
)
"""The types that a language model can give, in words."""


def arguments_of(
    function: Callable[..., Any], tool: str, descriptions: Mapping[str, str]
) -> tuple[type[BaseModel], str]:
    """Return a model of a function's arguments, and the name of the parameter that gets the call, or "".

    tool: the tool's name, for messages. descriptions: of parameters, by their names. The fields of the model
    are numbered, because pydantic refuses some names; the parameters' names are their aliases. Raises
    TypeError where the language model could not give an argument.
    """
    call_argument = ""
    fields: dict[str, Any] = {}
    hints = _hints(function, tool)
    for one in inspect.signature(function).parameters.values():
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise TypeError(f"tool {tool}: parameter {one} must be an ordinary parameter")
        if one.name not in hints:
            raise TypeError(f"tool {tool}: parameter {one.name} has no type annotation")
        if _is_call(hints[one.name]):
            call_argument = one.name
            continue
        default = ... if one.default is one.empty else one.default
        said: dict[str, Any] = {"description": descriptions[one.name]} if one.name in descriptions else {}
        field = (hints[one.name], Field(default, alias=one.name, **said))
        _check(tool, one.name, field)
        fields[f"argument_{len(fields)}"] = field
    return _model(tool, fields), call_argument


def schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, without titles: they repeat the names."""
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for one in schema.get("properties", {}).values():
        one.pop("title", None)
    return schema


def values_of(given: BaseModel) -> dict[str, Any]:
    """Return the arguments for the function, by the names of its parameters."""
    return {str(field.alias): getattr(given, name) for name, field in type(given).model_fields.items()}


def _model(tool: str, fields: Mapping[str, Any]) -> type[BaseModel]:
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    made: type[BaseModel] = create_model(tool, __config__=config, **fields)
    return made


def _check(tool: str, name: str, field: tuple[Any, Any]) -> None:
    """Raise TypeError, which names the parameter, if its type has no JSON schema."""
    try:
        _model(tool, {"argument": field}).model_json_schema()
    except (PydanticUserError, PydanticInvalidForJsonSchema):
        kind = getattr(field[0], "__name__", "") if isinstance(field[0], type) else ""
        raise TypeError(
            f"tool {tool}: parameter {name} is of type {kind or field[0]}, which has no JSON schema, so no "
            f"model can give it; types that work: {GOOD_TYPES}"
        ) from None


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """Return the types of the parameters. Raises TypeError for a name that is not defined."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        annotations = getattr(function, "__annotations__", {})
        using = [
            name
            for name, kind in annotations.items()
            if error.name and re.search(rf"\b{re.escape(error.name)}\b", str(kind))
        ]
        where = f"the annotation of parameter {using[0]}" if using else "an annotation"
        raise TypeError(
            f"tool {tool}: {where}: {error}; it has to be defined or imported at the top level of the file, "
            "and not only under TYPE_CHECKING"
        ) from None


def _is_call(hint: Any) -> bool:
    origin = getattr(hint, "__origin__", hint)
    return isinstance(origin, type) and issubclass(origin, Call)
