"""The ``info`` event of a Wyoming server: its recogniser, voice and language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rejoinder.agent.wires.names import catalogued, first_llm, known_as
from rejoinder.models.built_in import BUILT_IN
from rejoinder.models.loading import Specs
from rejoinder.models.specs import with_language
from rejoinder.models.weights.catalog import PACKAGED, catalog
from rejoinder.pipeline import PipelineError

SERVER_NAME = "Rejoinder"
"""The name that Wyoming clients show."""
MAKERS = {
    "whisper": ("OpenAI", "https://github.com/openai/whisper"),
    "piper": ("Piper's voices", "https://github.com/OHF-Voice/piper1-gpl"),
    "hibari": ("Hibari", "https://github.com/MMWilliams/hibari"),
    "smollm2-135m-instruct": ("Hugging Face", "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct"),
}
"""Maker and origin of a model in the catalog, by the model's name or its adapter's."""
ENGLISH_ONLY = ["en"]
"""Languages of English-only models."""


def info(specs: Specs) -> dict[str, Any]:
    """Return the data of an ``info`` event. It needs no loaded model."""
    stt, tts, llm = (_model(spec) for spec in (specs.stt, specs.tts, first_llm(specs)))
    program = {
        "name": SERVER_NAME,
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
                "models": [{**llm, "languages": understood(first_llm(specs))}],
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
        path: Path = BUILT_IN[prefix].find(argument)
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
    key = catalogued(spec)
    about = "a model of your own"
    if key:
        about = f"{catalog()[key].purpose}; licence: {catalog()[key].licence}"
    elif prefix in PACKAGED:
        about = f"{PACKAGED[prefix].purpose}; licence: {PACKAGED[prefix].licence}"
    elif prefix == "openai":
        about = "behind an OpenAI-compatible server"
    elif prefix == "triton":
        about = "in Triton Inference Server"
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
