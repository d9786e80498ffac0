"""Weights of the Hugging Face hub that are not in the catalog, because they are too large or too many.

They are in the hub's own cache, which other programs share. Opening a model fetches nothing; only
``rejoinder models fetch`` does.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from rejoinder.pipeline.errors import ModelError

SERVED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.tiktoken")
"""Patterns of the files that an engine reads. Repositories also hold the weights in other formats."""


def is_repository(name: str) -> bool:
    """Return whether a name has the form ORGANISATION/NAME."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None


def snapshot(repository: str) -> Path:
    """Return the cached folder of a repository, without using the network. Raises ModelError."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(repository, local_files_only=True, allow_patterns=list(SERVED))
    except Exception as error:  # the hub's client has an error class for each reason
        raise _absent(repository, repository) from error
    if not Path(folder, "config.json").is_file():
        raise _absent(repository, repository)
    return Path(folder)


def is_whisper(name: str) -> bool:
    """Return whether faster-whisper knows a model of this name, such as large-v3-turbo."""
    if find_spec("faster_whisper") is None:
        return False
    from faster_whisper.utils import available_models

    return name in available_models()


def whisper_snapshot(name: str) -> Path:
    """Return the cached folder of a Whisper model, without using the network. Raises ModelError."""
    from faster_whisper.utils import download_model

    try:
        return Path(download_model(name, local_files_only=True))
    except Exception as error:
        raise _absent(f"whisper:{name}", f"whisper-{name}") from error


def fetch(name: str) -> Path | None:
    """Fetch ``ORGANISATION/NAME`` or ``whisper-NAME``, and return its folder; None for other names.

    Blocks for the length of the download, which may be gigabytes. Raises ModelError if the hub cannot be
    reached or refuses the download; the message says what to do.
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
            "copy the folder here and name its path; for a model with a licence agreement, accept it on the "
            "model's page and run: hf auth login",
        ) from error
    return None


def _absent(spec: str, name: str) -> ModelError:
    return ModelError(
        spec, f"its weights are not here; run: rejoinder models fetch {name}, or name the path of a folder"
    )
