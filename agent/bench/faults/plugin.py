"""Installs further models for a server of its own, as another distribution does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FAULTY_MODELS = {"faulty": "rejoinder.agent.bench.faults.models:open_faulty"}
"""The entry point of the models that fail."""
FAULTY = {"stt": "faulty:stt", "llm": "faulty:llm", "tts": "faulty:tts"}
"""The flags of ``rejoinder serve`` that use them."""


def install_models(folder: Path, entry_points: Mapping[str, str]) -> Path:
    """Write the metadata of a distribution with these models, and return what its PYTHONPATH has to name.

    entry_points: name of each adapter, and the function that opens its models.
    """
    info = folder / "plugins" / "more_models-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more-models\nVersion: 1.0\n")
    named = "".join(f"{name} = {function}\n" for name, function in entry_points.items())
    (info / "entry_points.txt").write_text(f"[rejoinder.models]\n{named}")
    return info.parent
