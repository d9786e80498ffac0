"""What is wrong with a configuration: one sentence for each mistake, with its place and what is accepted."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from rejoinder.agent.complaints import TYPES, Complaint, complaints

PREFIX = "REJOINDER_"
ENVIRONMENT, FLAG, DEFAULT, PROFILE = "environment", "flag", "default", "profile "
"""Sources of values; a profile's name follows, and any other is a file."""
SECRET = ("api_keys", "twilio_auth_token")
"""Settings whose values are never shown: a key may stand where its hash belongs."""
SHOWN = 60
"""Characters of a wrong value that are shown."""
CHOICE = re.compile(r"\^\(([\w|-]+)\)\$")
"""A pattern that is a list of words."""
WORDS = {
    "api_keys": "the hashes of keys, as `rejoinder key` prints them, HASH or HASH:CALLS:PER_MINUTE each",
    "public_url": "an address that begins with https://",
    "vllm": "a table: a line [vllm], and its settings below",
    "vllm.speculative_config": 'a table, as {method = "ngram", num_speculative_tokens = 3}',
}
"""What is accepted, where a pattern says it for programs only."""
SYNONYMS = {"voice": "tts", "model": "llm", "prompt": "instructions", "system_prompt": "instructions"}
"""Names that newcomers try, and that are spelled too differently to be recognised."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds, {} where there is none. Raises ValueError that says what is wrong."""
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
    """Return the environment variable of a setting; of one of [vllm], the name is vllm.NAME."""
    return f"{PREFIX}{name.upper().replace('.', '_')}"


def place(name: str, source: str) -> str:
    """Return where a setting was set, as the person who set it would look for it."""
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
    """Return a sentence for each mistake that pydantic has found.

    values, sources: what was given and where, by the flat name of a setting. fields: all that there are, by
    the same names.
    """
    return [_mistake(found, values, sources, fields) for found in complaints(error, ())]


def _mistake(
    found: Complaint, values: Mapping[str, Any], sources: Mapping[str, str], fields: Mapping[str, FieldInfo]
) -> str:
    if found.kind == "extra_forbidden":
        return unknown(".".join(found.place), sources, fields)
    name = next(one for length in (2, 1) if (one := ".".join(found.place[:length])) in fields)
    where = place(name, sources.get(name, DEFAULT))
    if found.kind == "value_error":
        return f"{where}: {found.reason}"
    wanted = accepted(name, fields[name])
    reason = f"has to be {wanted}" if wanted else found.reason
    if name in SECRET or name not in values:
        return f"{where} {reason}"
    return f"{where} is {_shown(values[name])} and {reason}"


def _shown(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= SHOWN else f"{told[:SHOWN]}…"


def unknown(name: str, sources: Mapping[str, str], fields: Collection[str]) -> str:
    """Return the sentence about a setting that there is not, with the one that it most resembles."""
    table, _, last = name.rpartition(".")
    where = f"{sources.get(name, 'the configuration')}: "
    inside = f" in [{table}]" if table else ""
    told = f"{where}there is no setting {last!r}{inside}"
    beside = [one.removeprefix(f"{table}.") for one in fields if one.rpartition(".")[0] == table]
    if table and last in fields:
        return f"{told}: {last} belongs above the line [{table}]"
    if near := nearest(last, beside):
        return f"{told}; did you mean {near}?"
    if elsewhere := [one for one in fields if one.endswith(f".{last}")]:
        return f"{told}: it belongs below a line [{elsewhere[0].partition('.')[0]}]"
    return f"{told}; there are: {', '.join(sorted(beside))}"


def nearest(name: str, names: Collection[str]) -> str:
    """Return the one of these names that was probably meant, "" where none resembles it."""
    lower = name.lower().replace("-", "_")
    if SYNONYMS.get(lower) in names:
        return SYNONYMS[lower]
    return next(iter(get_close_matches(lower, names, 1)), "")


def accepted(name: str, field: FieldInfo) -> str:
    """Return what a setting may be, in words."""
    union = get_origin(field.annotation) in (UnionType, Union)
    kinds = get_args(field.annotation) if union else (field.annotation,)
    kind = next(one for one in kinds if one is not NoneType)
    if get_origin(kind) is Literal:
        return _either(get_args(kind))
    limits = {
        limit: value
        for part in field.metadata
        for limit in ("gt", "ge", "le", "max_length", "pattern")
        if (value := getattr(part, limit, None)) is not None
    }
    if choice := CHOICE.fullmatch(limits.get("pattern", "")):
        return _either(choice[1].split("|"))
    if name in WORDS:
        return WORDS[name]
    noun = TYPES.get(getattr(kind, "__name__", ""), "")
    if kind is str and "max_length" in limits:
        return f"a string of at most {limits['max_length']:,} characters"
    return noun + _range(limits)


def _range(limits: Mapping[str, Any]) -> str:
    """Return the words for the least and the most, "" for none."""
    least, most = limits.get("ge", limits.get("gt")), limits.get("le")
    if "gt" in limits:
        return f" above {least:g}, {most:g} at most" if most is not None else f" above {least:g}"
    if least is None:
        return ""
    return f" from {least:g} to {most:g}" if most is not None else f" of at least {least}"


def _either(words: Collection[Any]) -> str:
    *others, last = words
    return f"{', '.join(map(str, others))} or {last}" if others else str(last)


def unknown_variables(environment: Mapping[str, str], known: Collection[str]) -> str:
    """Return which variables look like ours and are not, in a sentence; "" for none.

    known: names of variables, with the prefix.
    """
    told = []
    # What they have in common would make them all alike.
    ours = [one.removeprefix(PREFIX).lower() for one in known]
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            near = nearest(name.upper().removeprefix(PREFIX), ours)
            told.append(f"{name} (did you mean {PREFIX}{near.upper()}?)" if near else name)
    return f"there is no setting for: {', '.join(told)}" if told else ""
