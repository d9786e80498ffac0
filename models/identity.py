"""What names the models of an answer, so that another model's answer is never taken for it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rejoinder.models.llm.spec_list import listed
from rejoinder.models.placement import Placement

ANSWERING_ROLES = ("stt", "llm", "tts")
"""The roles that an answer depends on."""


def identity(specs: Mapping[str, str], placement: Placement) -> dict[str, str]:
    """Return the specs of the roles that an answer depends on; none where a passing state chooses its model.

    That of a list of language models includes their tables and the rules between them, without secrets. A
    rule by time of day, load or cost may choose another model a minute later.
    """
    if any(
        rule.hours
        or rule.load_above is not None
        or rule.cost_left_below is not None
        or rule.budget_above is not None
        for rule in placement.routes
    ):
        return {}
    found = {role: spec for role, spec in specs.items() if role in ANSWERING_ROLES}
    if "llm" in found:
        names = listed(found["llm"], placement.models)
        tables = {one: placement.models[one].model_dump_json() for one in names if one in placement.models}
        rules = [rule.model_dump_json() for rule in placement.routes]
        if tables or rules:
            found["llm"] = json.dumps([found["llm"], tables, rules])
    return found
