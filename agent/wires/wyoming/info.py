"""The ``info`` event of a Wyoming server: its recogniser, voice and language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rejoinder.agent.model_names import catalogued, known_as
from rejoinder.models.loading import Specs
from rejoinder.models.registry import adapter
from rejoinder.models.stt.languages import with_language
from rejoinder.models.tts.piper import ADAPTER as PIPER
from rejoinder.models.weights.catalog import catalog
from rejoinder.pipeline import PipelineError

PROGRAM_NAME = "Rejoinder"
"""The name that Wyoming clients show."""
ENGLISH_ONLY = ["en"]
"""Languages of English-only models."""


def info(specs: Specs) -> dict[str, Any]:
    """Return the data of an ``info`` event. It needs no loaded model."""
    stt, tts, llm = (_model(spec) for spec in (specs.stt, specs.tts, specs.llm))
    program = {
        "name": PROGRAM_NAME,
        "attribution": {"name": "The Rejoinder authors", "url": ""},
        "installed": True,
        "version": version("rejoinder"),
    }
    return {
        "asr": [
            {
                **program,
                "description": "speech to text",
                "models": [{**stt, "languages": stt_languages(specs.stt)}],
                "supports_transcript_streaming": False,
                # The client detects the end of a command and processes its microphone's audio itself.
                "requires_external_vad": True,
                "prefers_auto_gain_enabled": True,
                "prefers_noise_reduction_enabled": True,
            }
        ],
        "tts": [
            {
                **program,
                "description": "text to speech",
                "voices": [{**tts, "languages": spoken(specs.tts), "speakers": None}],
                "supports_synthesize_streaming": True,
            }
        ],
        "handle": [
            {
                **program,
                "description": "conversation",
                "models": [{**llm, "languages": understood(specs.llm)}],
                "supports_handled_streaming": True,
                "supports_home_control": False,
            }
        ],
        "intent": [],
        "wake": [],
        "mic": [],
        "snd": [],
    }


def stt_languages(spec: str) -> list[str]:
    """Return the languages of a recogniser. Whisper's is in its spec; others count as English."""
    prefix, _, argument = spec.partition(":")
    return [with_language(argument)[1]] if prefix == "whisper" else ENGLISH_ONLY


def spoken(spec: str) -> list[str]:
    """Return the languages of a voice. Piper's voices declare theirs; others count as English."""
    prefix, _, argument = spec.partition(":")
    if prefix != "piper":
        return ENGLISH_ONLY
    try:
        path: Path = PIPER.find(argument)
        settings = json.loads(path.with_name(path.name + ".json").read_text(encoding="utf-8"))
        return [str(settings["language"]["code"])]
    except (PipelineError, OSError, ValueError, KeyError, TypeError):
        return ENGLISH_ONLY


def understood(spec: str) -> list[str]:
    """Return the languages of a language model. An empty list stands for any language."""
    return ENGLISH_ONLY if catalogued(spec) else []


def speaks(language: str, known: Sequence[str]) -> bool:
    """Return whether a language (``en``, ``en-GB``, ``en_US``) is known, regardless of country."""
    base = language.replace("_", "-").partition("-")[0].casefold()
    return not base or not known or base in [one.replace("_", "-").partition("-")[0] for one in known]


def _model(spec: str) -> dict[str, Any]:
    """Return the name, description and origin of a model, without URLs and paths of the user."""
    prefix = spec.partition(":")[0]
    ours = adapter(prefix)
    known = catalog().get(catalogued(spec)) or (ours.packaged if ours else None)
    about = "a model of your own"
    if known:
        about = f"{known.purpose}; licence: {known.licence}"
    elif prefix == "openai":
        about = "behind an OpenAI-compatible server"
    elif prefix == "scripted":
        about = "a script, no model"
    return {
        "name": known_as(spec),
        "attribution": {"name": known.maker if known else "unknown", "url": known.origin if known else ""},
        "installed": True,
        "description": about,
        "version": None,
    }
