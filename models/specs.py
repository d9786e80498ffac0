"""The roles of models, and the short names of the language models."""

from __future__ import annotations

from rejoinder.pipeline.fitting import PARTS

ROLES = {kind: PARTS[kind].name for kind in ("vad", "turn", "stt", "llm", "tts")}
"""Name of each role for error messages, by kind, in the order in which a set of models is loaded."""
LANGUAGE_MODELS = {
    "tiny": "ort:smollm2-135m-instruct",
    "small": "ort:qwen2.5-coder-0.5b-instruct",
    "medium": "ort:qwen2.5-coder-1.5b-instruct",
}
"""Short names of the language models in the catalog, by size, with the engine that answers the soonest."""


def is_path(argument: str) -> bool:
    """Return whether the argument of a spec is a path.

    It has a slash, or begins with a dot or ``~``, or is the name of a GGUF file.
    """
    return "/" in argument or argument.startswith((".", "~")) or argument.endswith(".gguf")


def size_or_spec(spec: str) -> str:
    """Return the size that stands for the spec of a language model, or the spec."""
    return next((size for size, known in LANGUAGE_MODELS.items() if known == spec), spec)


def catalogued_llms() -> list[str]:
    """Return the catalog's names of the language models."""
    return [spec.partition(":")[2] for spec in LANGUAGE_MODELS.values()]


def no_language_model(name: str) -> str:
    """Return the error message for an unknown language model."""
    known = f"{', '.join(LANGUAGE_MODELS)}, llama:PATH for a GGUF file, openai:http://HOST/v1#MODEL"
    return f"there is no {name!r}; there are: {known}"
