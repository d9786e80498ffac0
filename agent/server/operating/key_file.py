"""The API keys of a server: those of its settings, and those of a file that is read again when it changes."""

from __future__ import annotations

import re
from pathlib import Path

from rejoinder.agent.config import Settings

PATTERN = next(
    each.pattern for each in Settings.model_fields["api_keys"].metadata if hasattr(each, "pattern")
)
"""The form of the setting ``api_keys``, which each line of the file has."""


def all_keys(settings: Settings) -> str:
    """Return the keys' hashes and limits, in the form of the setting ``api_keys``.

    Raises ValueError where the file is wrong.
    """
    if not settings.api_keys_file:
        return settings.api_keys
    return " ".join([settings.api_keys.strip(), *read_keys(file_of(settings))])


def file_of(settings: Settings) -> Path:
    """Return the path of the file of keys."""
    return Path(settings.api_keys_file).expanduser()


def read_keys(path: Path) -> list[str]:
    """Return the entries of a file of API keys.

    Each line has one entry; what follows a ``#`` is a comment. Raises ValueError with a sentence that shows
    no entry, because a user may have put a key in place of its hash. A file without an entry is an error: it
    would open the server to all.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"api_keys_file: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"api_keys_file: {path} is not text in UTF-8") from error
    found = []
    for number, line in enumerate(lines, 1):
        entry = line.partition("#")[0].strip()
        if entry and (len(entry.split()) > 1 or not re.match(PATTERN, entry)):
            raise ValueError(
                f"api_keys_file: {path}, line {number}: write the hash of one key, as `rejoinder key` prints "
                "it, HASH or HASH:CALLS:PER_MINUTE or HASH:CALLS:PER_MINUTE:AUDIO_S"
            )
        found += [entry] if entry else []
    if not found:
        raise ValueError(
            f"api_keys_file: {path} has no key: write the hash of one, as `rejoinder key` prints it"
        )
    return found
