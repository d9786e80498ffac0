"""What a spec such as ``ray:whisper:tiny.en`` names: a deployment of Ray Serve, and the model in it."""

from __future__ import annotations

import hashlib
import re

RAY = "ray"
"""The adapter's name in specs."""
DEPLOYED_ROLES = ("stt", "turn", "tts")
"""The roles whose models can be deployed."""
DEPLOYABLE = {
    "whisper": "stt",
    "smart-turn": "turn",
    "piper": "tts",
    "hibari": "tts",
}
"""The role of each model that can be deployed, by its adapter."""
NAME_CHARACTERS = 60
"""Most characters of a model in the name of its application; a longer one ends in a hash."""


def kind_of(spec: str) -> str:
    """Return the role of a model: stt, turn or tts; "" for a model that cannot be deployed.

    Scripted models say their role themselves, such as ``scripted:stt|hello``.
    """
    prefix, _, argument = spec.partition(":")
    named = argument.partition("|")[0] if prefix == "scripted" else DEPLOYABLE.get(prefix, "")
    return named if named in DEPLOYED_ROLES else ""


def application(spec: str) -> str:
    """Return the name of the application of Ray Serve that runs a model, such as rejoinder-whisper-tiny.en.

    Ray puts names into paths, so characters other than letters, digits, dots and underscores become dashes. A
    name that loses something that way ends in a hash, so that no other model has it.
    """
    name = re.sub(r"[^\w.]+", "-", spec, flags=re.ASCII).strip("-")
    if name != spec.replace(":", "-") or len(name) > NAME_CHARACTERS:
        name = f"{name[:NAME_CHARACTERS]}-{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
    return f"rejoinder-{name}"
