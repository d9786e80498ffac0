"""What a spec such as ``whisper:base@de`` names: the weights of an adapter, a voice, or a path."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rejoinder.models.stt.languages import ENGLISH
from rejoinder.models.weights.catalog import catalog
from rejoinder.models.weights.hub import is_repository, is_whisper
from rejoinder.pipeline.fitting import PARTS

ROLES = {kind: PARTS[kind].name for kind in ("vad", "turn", "stt", "llm", "tts")}
"""Name of each role for error messages, by kind, in the order in which a set of models is loaded."""
DEFAULTS = {
    "silero": "",
    "smart-turn": "",
    "whisper": "tiny.en",
    "llama": "smollm2-135m-instruct",
    "ort": "smollm2-135m-instruct",
    "piper": "en_US-joe-medium",
    "hibari": "heart",
}
"""The argument that a spec without one stands for, by adapter."""
LANGUAGE_MODELS = {
    "tiny": "ort:smollm2-135m-instruct",
    "small": "ort:qwen2.5-coder-0.5b-instruct",
    "medium": "ort:qwen2.5-coder-1.5b-instruct",
}
"""Short names of the language models in the catalog, by size, with the engine that answers the soonest."""
CATALOGUED = {
    "silero": "silero-vad",
    "smart-turn": "smart-turn-v3.2",
    "whisper": "whisper-{}",
    "llama": "{}",
    "ort": "{}",
    "piper": "piper-{}",
}
"""The catalog name of an adapter's weights; ``{}`` stands for the argument of the spec."""


def weights(spec: str) -> str | None:
    """Return the catalog name of the weights that ``spec`` needs, or None if it needs none."""
    prefix, name = _name(spec)
    pattern = CATALOGUED.get(prefix)
    return None if pattern is None or is_path(name) else pattern.format(name or DEFAULTS[prefix])


def of_hub(spec: str) -> str | None:
    """Return the ``rejoinder models fetch`` name of the hub weights that ``spec`` needs, or None."""
    prefix, name = _name(spec)
    if prefix == "vllm":
        return name if is_repository(name) else None
    if prefix == "whisper" and not is_path(name) and weights(spec) not in catalog() and is_whisper(name):
        return weights(spec)
    return None


def own_path(spec: str) -> Path:
    """Return the path in a spec that names a file or folder instead of a catalog entry."""
    return Path(_name(spec)[1]).expanduser()


def is_path(argument: str) -> bool:
    """Return whether the argument of a spec is a path.

    It has a slash, or begins with a dot or ``~``, or is the name of a GGUF file.
    """
    return "/" in argument or argument.startswith((".", "~")) or argument.endswith(".gguf")


def _name(spec: str) -> tuple[str, str]:
    prefix, _, argument = spec.partition(":")
    return prefix, with_language(argument)[0] if prefix == "whisper" else argument


def with_language(argument: str) -> tuple[str, str]:
    """Split ``NAME@LANGUAGE`` into name and language. An existing path may itself contain an @."""
    name, at, language = argument.rpartition("@")
    if not at or "/" in language or (is_path(argument) and Path(argument).expanduser().exists()):
        return argument, ENGLISH
    return name, language


def voices() -> list[str]:
    """Return the specs of all named voices: those in the catalog and those of the package hibari."""
    start = CATALOGUED["piper"].format("")
    names = [f"piper:{name.removeprefix(start)}" for name in catalog() if name.startswith(start)]
    return names + [f"hibari:{name}" for name in hibari_voices()]


def no_voice(name: str) -> str:
    """Return the error message for an unknown voice."""
    return f"there is no voice {name!r}; there are: {', '.join(voices())}, and piper:PATH for any of Piper's"


def no_language_model(name: str) -> str:
    """Return the error message for an unknown language model."""
    known = f"{', '.join(LANGUAGE_MODELS)}, llama:PATH for a GGUF file, openai:http://HOST/v1#MODEL"
    return f"there is no {name!r}; there are: {known}"


def hibari_voices() -> list[str]:
    """Return the names of the voices in the package hibari; only the default one if it is not installed."""
    if find_spec("hibari") is None:
        return [DEFAULTS["hibari"]]
    from hibari.voices import VOICES

    return list(VOICES)
