"""The Jinja environment in which chat templates are written."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any


def chat_environment() -> Any:
    """Return a sandboxed Jinja environment with what chat templates expect.

    Templates come with models, so they are not trusted. The names are those of transformers
    (src/transformers/utils/chat_template_utils.py): ``raise_exception``, ``strftime_now``, and a ``tojson``
    that keeps characters as they are.
    """
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(reason: str) -> None:
    raise ValueError(reason)  # chat templates call this to reject messages
