"""The checks of ``rejoinder doctor`` that concern the files of TLS and of API keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rejoinder.agent.cli.doctor.machine import Check
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.server.operating.key_file import file_of, read_keys
from rejoinder.agent.server.operating.tls import open_certificate


def check_files(settings: Settings) -> Iterator[Check]:
    """Yield a check of the certificate and of the file of API keys, where the settings name them."""
    if settings.tls_cert:
        yield _checked("certificate", settings.tls_cert, lambda: open_certificate(settings))
    if settings.api_keys_file:
        yield _checked("API keys", settings.api_keys_file, lambda: read_keys(file_of(settings)))


def _checked(part: str, path: str, read: Callable[[], object]) -> Check:
    try:
        read()
    except (ValueError, ConfigError) as error:
        return Check(part, "broken", str(error), f"mend {path}, or leave the setting empty", path=path)
    return Check(part, "ok", "can be read and fits", path=path)
