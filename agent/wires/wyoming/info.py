"""What a Wyoming server says about itself: which recogniser, voice and language model it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rejoinder.agent.wires.names import catalogued, known_as
from rejoinder.models.loading import Specs
from rejoinder.models.registry import BUILT_IN, with_language
from rejoinder.models.weights.catalog import PACKAGED, catalog
from rejoinder.pipeline import PipelineError

NAME = "Rejoinder"
MAKERS = {
    "whisper": ("OpenAI", "https://github.com/openai/whisper"),
    "piper": ("Piper's voices", "https://github.com/OHF-Voice/piper1-gpl"),
    "hibari": ("Hibari", "https://github.com/MMWilliams/hibari"),
    "smollm2-135m-instruct": ("Hugging Face", "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct"),
}
"""Who made a model of the catalog, and where it is from, by its name or its adapter's."""
ENGLISH = ["en"]


def info(specs: Specs) -> dict[str, Any]:
    """Return the data of an ``info`` event; it is known before any model is loaded."""
    stt, tts, llm = (_model(spec) for spec in (specs.stt, specs.tts, specs.llm))
    program = {
        "name": NAME,
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
                # The client says when a command is over, and its microphone is its own business.
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
    """Return the languages of a recogniser: Whisper is told one, and that of others is not known here."""
    prefix, _, argument = spec.partition(":")
    return [with_language(argument)[1]] if prefix == "whisper" else ENGLISH


def spoken(spec: str) -> list[str]:
    """Return the languages of a voice: Piper's say which, and those of others is not known here."""
    prefix, _, argument = spec.partition(":")
    if prefix != "piper":
        return ENGLISH
    try:
        path: Path = BUILT_IN[prefix].find(argument)
        settings = json.loads(path.with_name(path.name + ".json").read_text(encoding="utf-8"))
        return [str(settings["language"]["code"])]
    except (PipelineError, OSError, ValueError, KeyError, TypeError):
        return ENGLISH


def understood(spec: str) -> list[str]:
    """Return the languages of a language model; none stands for any, where it is not known here."""
    return ENGLISH if catalogued(spec) else []


def speaks(language: str, known: Sequence[str]) -> bool:
    """Tell whether a language (``en``, ``en-GB``, ``en_US``) is known, of whatever country."""
    base = language.replace("_", "-").partition("-")[0].casefold()
    return not base or not known or base in [one.replace("_", "-").partition("-")[0] for one in known]


def name_of(spec: str) -> str:
    """Return what clients know a model by, which is not where a server or a file of the user is."""
    return str(_model(spec)["name"])


def _model(spec: str) -> dict[str, Any]:
    """Return name, description and origin of a model, but not where a server or a file of the user is."""
    prefix = spec.partition(":")[0]
    key = catalogued(spec)
    about = "a model of your own"
    if key:
        about = f"{catalog()[key].purpose}; licence: {catalog()[key].licence}"
    elif prefix in PACKAGED:
        about = f"{PACKAGED[prefix].purpose}; licence: {PACKAGED[prefix].licence}"
    elif prefix == "openai":
        about = "behind an OpenAI-compatible server"
    elif prefix == "scripted":
        about = "a script, no model"
    known = bool(key) or prefix in PACKAGED
    maker, url = (MAKERS.get(key) or MAKERS.get(prefix) or ("", "")) if known else ("", "")
    return {
        "name": known_as(spec),
        "attribution": {"name": maker or "unknown", "url": url},
        "installed": True,
        "description": about,
        "version": None,
    }
