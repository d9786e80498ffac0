"""Weights of the Hugging Face hub that are too large, or too many, for the catalog.

They lie in the hub's own cache, where other programs share them. Nothing is fetched while a model is opened:
``rejoinder models fetch`` does that, where somebody waits for it.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from rejoinder.pipeline.errors import ModelError

SERVED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.tiktoken")
"""Files that an engine reads; repositories also hold the same weights in other formats."""


def is_repository(name: str) -> bool:
    """Tell whether a name has the shape ORGANISATION/NAME."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None


def snapshot(repository: str) -> Path:
    """Return the folder of a repository that was fetched, without the network. Raises ModelError."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(repository, local_files_only=True, allow_patterns=list(SERVED))
    except Exception as error:  # the hub's client has one for each reason
        raise _absent(repository, repository) from error
    if not Path(folder, "config.json").is_file():
        raise _absent(repository, repository)
    return Path(folder)


def is_whisper(name: str) -> bool:
    """Tell whether faster-whisper knows a recogniser by this name, such as large-v3-turbo."""
    if find_spec("faster_whisper") is None:
        return False
    from faster_whisper.utils import available_models

    return name in available_models()


def whisper_snapshot(name: str) -> Path:
    """Return the folder of a recogniser that was fetched, without the network. Raises ModelError."""
    from faster_whisper.utils import download_model

    try:
        return Path(download_model(name, local_files_only=True))
    except Exception as error:
        raise _absent(f"whisper:{name}", f"whisper-{name}") from error


def fetch(name: str) -> Path | None:
    """Fetch ``ORGANISATION/NAME``, or ``whisper-NAME``, and return its folder; None for other names.

    Blocks for as long as gigabytes take. Raises ModelError, which says how to get on, where the hub cannot be
    reached or will not give it.
    """
    from huggingface_hub import snapshot_download

    try:
        if is_repository(name):
            return Path(snapshot_download(name, allow_patterns=list(SERVED)))
        if name.startswith("whisper-") and is_whisper(name.removeprefix("whisper-")):
            from faster_whisper.utils import download_model

            return Path(download_model(name.removeprefix("whisper-")))
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(
            name,
            f"the hub does not give it: {said[:300]}. To get on: fetch it on a machine that reaches the hub, "
            "copy the folder here and name its path; for a model behind a licence, accept that on its page "
            "and run: hf auth login",
        ) from error
    return None


def _absent(spec: str, name: str) -> ModelError:
    return ModelError(
        spec, f"its weights are not here; run: rejoinder models fetch {name}, or name the path of a folder"
    )
