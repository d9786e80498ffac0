"""Piper voices (https://github.com/OHF-Voice/piper1-gpl): GPL-3.0-or-later, hence an extra."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rejoinder.models.onnx import open_session
from rejoinder.models.voice import Voice
from rejoinder.pipeline.audio import Samples
from rejoinder.pipeline.errors import ModelError


def open_voice(path: Path, threads: int) -> Voice:
    """Open the voice ``path`` (an .onnx file with its .onnx.json beside it). Raises ModelError."""
    if find_spec("piper") is None:
        raise ModelError("piper", "is not installed; run: pip install 'rejoinder[piper]' (GPL-3.0-or-later)")
    from piper import PiperVoice
    from piper.config import PiperConfig

    settings = path.with_name(path.name + ".json")
    try:
        config = PiperConfig.from_dict(json.loads(settings.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise ModelError("piper", f"cannot read {settings}: {error}") from error
    # PiperVoice.load would give its session all cores and let their threads spin.
    voice = PiperVoice(session=open_session(path, threads), config=config)

    def synthesize(text: str) -> Samples:
        pieces = [chunk.audio_float_array for chunk in voice.synthesize(text)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    return Voice("piper", config.sample_rate, synthesize)
