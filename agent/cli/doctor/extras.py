"""The checks of ``rejoinder doctor`` that concern settings which need packages of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from rejoinder.agent.cli.doctor.machine import Check
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.otlp import ENDPOINT, exports
from rejoinder.agent.wires.phone.control.controls import credentials
from rejoinder.models.hints import EXTRA_MODULES, install
from rejoinder.models.redis_server import REDIS_URLS

STORES = ("answer_cache", "conversations", "limits_store")
"""The settings that may name a Redis server."""


@dataclass(frozen=True, slots=True)
class ExtraInUse:
    """An extra that a setting needs. by: the setting. needed: whether the server ends without it."""

    extra: str
    by: str
    modules: tuple[str, ...]
    needed: bool = True


def check_extras(settings: Settings, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check the packages of each extra that a setting or a variable uses. Nothing else is listed."""
    for used in extras_in_use(settings, environment):
        lacking = [module for module in used.modules if not installed(module)]
        if lacking:
            detail = f"{used.by} needs {', '.join(lacking)}"
            yield Check(f"[{used.extra}]", "missing", detail, install(used.extra), used.needed)
        else:
            yield Check(f"[{used.extra}]", "ok", f"for {used.by}", needed=used.needed)


def extras_in_use(settings: Settings, environment: Mapping[str, str]) -> Iterator[ExtraInUse]:
    """Yield the extras that settings and variables use, beside those of models."""
    try:
        wanted = any(exports(signal, environment) for signal in ("traces", "metrics"))
    except ConfigError:  # the server says so when it starts
        wanted = False
    if wanted:
        modules = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        yield ExtraInUse("otel", ENDPOINT, modules)
    stores = {name: getattr(settings, name).get_secret_value() for name in STORES}
    if used := [name for name, url in stores.items() if url.startswith(REDIS_URLS)]:
        yield ExtraInUse("redis", ", ".join(used), EXTRA_MODULES["redis"])
    if settings.allowed_mcp_urls:
        yield ExtraInUse("mcp", "allowed_mcp_urls", EXTRA_MODULES["mcp"])
    if credentials(settings):
        yield ExtraInUse("phone", "the credentials of a carrier", EXTRA_MODULES["phone"])
    if "phone" in settings.guard_redact:
        yield ExtraInUse("guard", "guard_redact", EXTRA_MODULES["guard"])
    if settings.guard_moderation:
        yield ExtraInUse("openai", "guard_moderation", EXTRA_MODULES["openai"])
    if settings.metrics and shutil.which("nvidia-smi"):
        yield ExtraInUse("nvml", "the metrics of the GPU", EXTRA_MODULES["nvml"], needed=False)


def installed(module: str) -> bool:
    """Return whether a module, which may be inside a namespace, is installed. Imports its parents only."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False
