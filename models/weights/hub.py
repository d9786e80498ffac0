"""Weights of the Hugging Face hub that are not in the catalog, because they are too large or too many.

They are in the hub's own cache, which other programs share. Opening a model fetches nothing; only
``rejoinder models fetch`` does. The client takes the hub's address from HF_ENDPOINT and the token from
HF_TOKEN or ``hf auth login``, and sends the token to no other host (huggingface_hub/file_download.py).
"""

from __future__ import annotations

import hashlib
import re
from importlib.util import find_spec
from pathlib import Path

from rejoinder.models.weights.hub_errors import explained
from rejoinder.pipeline.errors import ModelError

SERVED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.tiktoken")
"""Patterns of the files that an engine reads. Repositories also hold the weights in other formats."""


HASH = re.compile(r"[0-9a-f]{64}")
"""A sha256. The hub's ETag is one for a large file, and a git hash for a small one."""
GGUF = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/(?P<file>[\w./-]+\.gguf)")
"""A GGUF file of a repository: ORGANISATION/NAME/FILE.gguf."""


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

    ``ORGANISATION/NAME/FILE.gguf`` is one file, whose path is returned. Blocks for the length of the
    download, which may be gigabytes. Raises ModelError if the hub cannot be reached or refuses the download,
    or if the file is not the one that the hub describes; the message says what to do.
    """
    from huggingface_hub import snapshot_download

    try:
        if found := GGUF.fullmatch(name):
            return _file(name, found["repository"], found["file"])
        if is_repository(name):
            return Path(snapshot_download(name, allow_patterns=list(SERVED)))
        if name.startswith("whisper-") and is_whisper(name.removeprefix("whisper-")):
            from faster_whisper.utils import download_model

            return Path(download_model(name.removeprefix("whisper-")))
    except ModelError:
        raise
    except Exception as error:  # the hub's client, its HTTP library and its settings each have error classes
        repository = "/".join(name.split("/")[:2])
        raise ModelError(
            name,
            f"cannot fetch it from the hub: {explained(error, repository)}. Without a hub: fetch it on "
            "another machine, copy the folder here and name its path",
        ) from error
    return None


def _file(name: str, repository: str, file: str) -> Path:
    """Fetch one file and compare it with the sha256 that the hub tells. Raises ModelError if they differ."""
    from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_download, hf_hub_url

    told = get_hf_file_metadata(hf_hub_url(repository, file), token=get_token())
    path = Path(hf_hub_download(repository, file, revision=told.commit_hash))
    if told.etag is None or not HASH.fullmatch(told.etag):
        return path
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != told.etag:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ModelError(name, f"{file} has sha256 {digest}, not {told.etag} as the hub says; fetch it again")
    return path


def _absent(spec: str, name: str) -> ModelError:
    return ModelError(
        spec, f"its weights are missing; run: rejoinder models fetch {name}, or name the path of a folder"
    )
