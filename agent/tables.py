"""The settings that are tables of the configuration, such as [vllm] and [guard], as flat names and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from rejoinder.agent.settings.budget import BudgetSettings
from rejoinder.agent.settings.guard import GuardSettings
from rejoinder.models.llm.vllm.settings import VllmSettings

SETTING_TABLES: Mapping[str, type[BaseModel]] = {
    "vllm": VllmSettings,
    "guard": GuardSettings,
    "budget": BudgetSettings,
}
"""The tables by name. A setting in one of them has the flat name TABLE.NAME."""
TABLE_FIELDS = {
    f"{table}.{name}": field
    for table, model in SETTING_TABLES.items()
    for name, field in model.model_fields.items()
}
"""The settings in tables by their flat names."""


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in one level, with those in tables as TABLE.NAME."""
    return {
        key: value
        for name, given in settings.items()
        for key, value in (
            ((f"{name}.{inner}", value) for inner, value in given.items())
            if name in SETTING_TABLES and isinstance(given, Mapping)
            else [(name, given)]
        )
    }


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings with those in tables in tables of their own."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        table, dot, inner = name.partition(".")
        if dot and table in SETTING_TABLES and table not in values:
            found.setdefault(table, {})[inner] = value
        elif not (dot and table in SETTING_TABLES):
            found[name] = value
    return {**{table: {} for table in SETTING_TABLES}, **found}
