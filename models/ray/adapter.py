"""Opens models that run in a Ray cluster: ``ray:whisper:tiny.en``."""

from __future__ import annotations

from typing import Any

from rejoinder.models.adapter import Adapter
from rejoinder.models.placement import Placement
from rejoinder.models.ray.names import RAY, kind_of
from rejoinder.pipeline.errors import ModelError


def _found(spec: str) -> str:
    if not kind_of(spec):
        raise ModelError(RAY, f"write ray:MODEL, such as ray:whisper:tiny.en, not {spec!r}")
    return spec


def _open(spec: str, threads: int, placement: Placement) -> Any:
    match kind_of(spec):
        case "stt":
            from rejoinder.models.ray.recogniser import RayStt

            return RayStt(spec)
        case "tts":
            from rejoinder.models.ray.voice import RayVoice

            return RayVoice(spec)
    from rejoinder.models.ray.turn_model import RayTurnModel

    return RayTurnModel(spec)


ADAPTER = Adapter(RAY, _open, packages=("ray",), finder=_found)
"""What the registry finds."""
