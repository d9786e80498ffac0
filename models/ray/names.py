"""What a spec such as ``ray:whisper:tiny.en`` names: a deployment of Ray Serve, and the model in it."""

from __future__ import annotations

import re

RAY = "ray"
"""The adapter's name in specs."""
DEPLOYABLE = {
    "whisper": "stt",
    "smart-turn": "turn",
    "piper": "tts",
    "hibari": "tts",
}
"""The role of each model that can be deployed, by its adapter."""


def kind_of(spec: str) -> str:
    """Return the role of a model: stt, turn or tts; "" for a model that cannot be deployed.

    Scripted models say their role themselves, such as ``scripted:stt|hello``.
    """
    prefix, _, argument = spec.partition(":")
    named = argument.partition("|")[0] if prefix == "scripted" else DEPLOYABLE.get(prefix, "")
    return named if named in DEPLOYABLE.values() else ""


def application(spec: str) -> str:
    """Return the name of the application of Ray Serve that runs a model, such as rejoinder-whisper-tiny.en.

    Ray puts names into paths, so characters other than letters, digits, dots and underscores become dashes.
    """
    return "rejoinder-" + re.sub(r"[^\w.]+", "-", spec, flags=re.ASCII).strip("-")[:80]
