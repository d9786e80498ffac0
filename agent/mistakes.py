"""Sentences about a wrong configuration: one per mistake, with its source and the accepted values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from rejoinder.agent.complaints import TYPES, Complaint, complaints
from rejoinder.models.llm.model_settings import ModelSettings
from rejoinder.models.llm.routing.settings import RouteSettings

PREFIX = "REJOINDER_"
"""Prefix of the environment variables of settings."""
ENVIRONMENT = "environment"
"""Source of a value: an environment variable."""
FLAG = "flag"
"""Source of a value: a flag of the command line."""
DEFAULT = "default"
"""Source of a value: the default of the setting."""
PROFILE = "profile "
"""Source of a value: a profile, whose name follows. Any source that is not among these is a file."""
SECRET = ("api_keys", "calls_key", "limits_store", "twilio_auth_token", "guard.moderation_key")
"""Settings whose values no message shows: a user may have put a key in place of its hash."""
MODEL_TABLES = "models"
"""The setting whose tables [models.NAME] are language models."""
ROUTE_TABLES = "routes"
"""The setting whose tables [[routes]] are rules."""
SHOWN = 60
"""Most characters of a wrong value in a message."""
CHOICE = re.compile(r"\^\(([\w|-]+)\)\$")
"""A pattern that is a list of words to choose from."""
EXPECTATIONS = {
    "api_keys": "the hashes of keys, as `rejoinder key` prints them, HASH or HASH:CALLS:PER_MINUTE or "
    "HASH:CALLS:PER_MINUTE:AUDIO_S each",
    "calls_key": "the hashes of keys, as `rejoinder key` prints them",
    "public_url": "an address that begins with https://",
    "drain_url": "the WebSocket address of a server, such as wss://b.example.com, without a path",
    ROUTE_TABLES: "tables: lines [[routes]], with the settings of a rule below each",
    "openings": "a list of first words, each at most 100 characters",
    f"{ROUTE_TABLES}.model": "one of the models in llm",
    f"{ROUTE_TABLES}.languages": 'a list of languages, as ["en"]',
    f"{ROUTE_TABLES}.hours": "two times of day, as 22:00-06:00",
    f"{ROUTE_TABLES}.keys": "a list of the first 8 to 64 characters of the hashes of API keys",
    "guard.region": "a country in two capital letters, such as DE",
    "guard.moderation": "openai:http://HOST/v1, and #MODEL where the server has several",
    "vllm.speculative_config": 'a table, as {method = "ngram", num_speculative_tokens = 3}',
}
"""The accepted values in words, for settings whose pattern is unreadable."""
SYNONYMS = {"voice": "tts", "model": "llm", "prompt": "instructions", "system_prompt": "instructions"}
"""Names that new users try and that are spelled too differently to be suggested by similarity."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, or {} if there is no file. Raises ValueError with the reason."""
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        hint = "; text needs quotes" if reason == "Invalid value" else ""
        raise ValueError(f"{path}, {place.removesuffix(')')}: {reason}{hint}") from error


def variable(name: str) -> str:
    """Return the environment variable of a setting. A setting in [vllm] has the name vllm.NAME."""
    return f"{PREFIX}{name.upper().replace('.', '_')}"


def place(name: str, source: str) -> str:
    """Return the place where the user set a value: a variable, a flag, or a file and a name."""
    if source == ENVIRONMENT:
        return variable(name)
    if source == FLAG:
        return f"--{name.replace('_', '-')}"
    if source == DEFAULT or source.startswith(PROFILE):
        return f"{name} ({source})"
    return f"{source}: {name}"


def mistakes(
    error: ValidationError,
    values: Mapping[str, Any],
    sources: Mapping[str, str],
    fields: Mapping[str, FieldInfo],
) -> list[str]:
    """Return a sentence for each mistake that pydantic found.

    values, sources: the given value and its source, by flat name of the setting. fields: all settings, by
    flat name.
    """
    return [_mistake(found, values, sources, fields) for found in complaints(error, ())]


def _mistake(
    found: Complaint, values: Mapping[str, Any], sources: Mapping[str, str], fields: Mapping[str, FieldInfo]
) -> str:
    if found.place[:1] == (ROUTE_TABLES,) and len(found.place) > 1:
        return _in_route(found, sources)
    if found.kind == "extra_forbidden":
        return unknown(".".join(found.place), sources, fields)
    if found.place[:1] == (MODEL_TABLES,) and len(found.place) > 2:
        return _in_model(found, values, sources)
    name = next(one for length in (2, 1) if (one := ".".join(found.place[:length])) in fields)
    where = place(name, sources.get(name, DEFAULT))
    if found.kind == "value_error":
        return f"{where}: {found.reason}"
    wanted = accepted(name, fields[name])
    reason = f"has to be {wanted}" if wanted else found.reason
    if name in SECRET or name not in values:
        return f"{where} {reason}"
    return f"{where} is {_shown(values[name])} and {reason}"


def _in_model(found: Complaint, values: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Return the sentence about a value in the table of a language model."""
    _, table, name, *_ = found.place
    where = f"{place(MODEL_TABLES, sources.get(MODEL_TABLES, DEFAULT))}.{table}.{name}"
    wanted = accepted(f"{MODEL_TABLES}.{name}", ModelSettings.model_fields[name])
    given = values.get(MODEL_TABLES, {}).get(table, {}).get(name)
    shown = f" is {_shown(given)} and" if isinstance(given, int | float | str) and "key" not in name else ""
    return f"{where}{shown} has to be {wanted}" if wanted else f"{where} {found.reason}"


def _in_route(found: Complaint, sources: Mapping[str, str]) -> str:
    """Return the sentence about a rule for language models."""
    _, number, *rest = found.place
    where = f"{place(ROUTE_TABLES, sources.get(ROUTE_TABLES, DEFAULT))}: rule {int(number) + 1}"
    if not rest or found.kind == "value_error":
        return f"{where}: {found.reason}" if found.kind == "value_error" else f"{where} {found.reason}"
    known = RouteSettings.model_fields
    if found.kind == "missing":
        return f"{where} needs a {rest[0]}: {EXPECTATIONS[f'{ROUTE_TABLES}.{rest[0]}']}"
    if found.kind == "extra_forbidden":
        near = nearest(rest[0], known)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(known)}"
        return f"{where}: there is no setting {rest[0]!r}; {hint}"
    return f"{where}: {rest[0]} has to be {accepted(f'{ROUTE_TABLES}.{rest[0]}', known[rest[0]])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def unknown(name: str, sources: Mapping[str, str], fields: Collection[str]) -> str:
    """Return the sentence about a setting that does not exist, with the most similar setting."""
    table, _, last = name.rpartition(".")
    source = sources.get(name) or sources.get(name.partition(".")[0], "the configuration")
    where = f"{source}: "
    inside = f" in [{table}]" if table else ""
    problem = f"{where}there is no setting {last!r}{inside}"
    beside = [one.removeprefix(f"{table}.") for one in fields if one.rpartition(".")[0] == table]
    if table.startswith("models."):
        beside = list(ModelSettings.model_fields)
    if table and last in fields:
        return f"{problem}: {last} belongs above the line [{table}]"
    if near := nearest(last, beside):
        return f"{problem}; did you mean {near}?"
    if elsewhere := [one for one in fields if one.endswith(f".{last}")]:
        return f"{problem}: it belongs below a line [{elsewhere[0].partition('.')[0]}]"
    return f"{problem}; there are: {', '.join(sorted(beside))}"


def nearest(name: str, names: Collection[str]) -> str:
    """Return the most similar of ``names``, or "" if none is similar."""
    lower = name.lower().replace("-", "_")
    if SYNONYMS.get(lower) in names:
        return SYNONYMS[lower]
    return next(iter(get_close_matches(lower, names, 1)), "")


def accepted(name: str, field: FieldInfo) -> str:
    """Return the accepted values of a setting, in words."""
    union = get_origin(field.annotation) in (UnionType, Union)
    kinds = get_args(field.annotation) if union else (field.annotation,)
    kind = next(one for one in kinds if one is not NoneType)
    if get_origin(kind) is Literal:
        return _either(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"a table: a line [{name}], and its settings below"
    limits = {
        limit: value
        for part in field.metadata
        for limit in ("gt", "ge", "le", "min_length", "max_length", "pattern")
        if (value := getattr(part, limit, None)) is not None
    }
    if choice := CHOICE.fullmatch(limits.get("pattern", "")):
        return _either(choice[1].split("|"))
    if name in EXPECTATIONS:
        return EXPECTATIONS[name]
    noun = TYPES.get(getattr(kind, "__name__", ""), "")
    noun = "a table" if noun == TYPES["dict"] else noun
    if kind is str and "max_length" in limits:
        least = f"{limits['min_length']:,} to" if "min_length" in limits else "at most"
        return f"a string of {least} {limits['max_length']:,} characters"
    return noun + _range(limits)


def _range(limits: Mapping[str, Any]) -> str:
    """Return the words for the lower and upper limit, or "" if there is none."""
    least, most = limits.get("ge", limits.get("gt")), limits.get("le")
    if "gt" in limits:
        above = f" above {_number(least)}"
        return f"{above}, {_number(most)} at most" if most is not None else above
    if least is None:
        return ""
    return (
        f" from {_number(least)} to {_number(most)}" if most is not None else f" of at least {_number(least)}"
    )


def _number(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else f"{limit:g}"


def _either(words: Collection[Any]) -> str:
    *others, last = words
    return f"{', '.join(map(str, others))} or {last}" if others else str(last)


def unknown_variables(environment: Mapping[str, str], known: Collection[str]) -> str:
    """Return a sentence about REJOINDER_ variables that are not settings, or "" if there are none.

    known: names of variables, with the prefix.
    """
    unknown = []
    # Without the shared prefix, which would make all names look similar.
    ours = [one.removeprefix(PREFIX).lower() for one in known]
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            near = nearest(name.upper().removeprefix(PREFIX), ours)
            unknown.append(f"{name} (did you mean {PREFIX}{near.upper()}?)" if near else name)
    return f"there is no setting for: {', '.join(unknown)}" if unknown else ""
