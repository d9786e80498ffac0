"""The commands that install this program and its extras, for a checkout or an installed package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from importlib.util import find_spec

from rejoinder.pipeline.errors import ModelError

NAME = "rejoinder"
"""The name of the distribution."""
VERIFY = "rejoinder models verify checks the files of the catalog"
"""What to do where weights cannot be loaded."""
EXTRA_MODULES = {
    "models": ("filelock", "platformdirs", "pydantic", "threadpoolctl", "typing_extensions"),
    "client": ("soxr", "tenacity", "websockets"),
    "server": (
        "anyio", "docstring_parser", "h11", "prometheus_client", "pybase64", "pydantic_settings",
        "rich", "soundfile", "starlette", "structlog", "typer", "uvicorn", "yaml",
    ),
    "local": (
        "ctranslate2", "faster_whisper", "gguf", "huggingface_hub",
        "jinja2", "onnx", "onnxruntime", "tokenizers",
    ),
    "openai": ("openai",),
    "reload": ("watchfiles",),
    "llama": ("xllamacpp",),
    "spoken": ("damga", "markdown_it"),
    "piper": ("piper",),
    "hibari": ("hibari",),
    "mic": ("sounddevice",),
    "guard": ("phonenumbers",),
    "ray": ("ray",),
    "redis": ("redis",),
    "nvml": ("pynvml",),
    "otel": ("opentelemetry",),
    "profile": ("psutil",),
    "record": ("cryptography",),
    "demo": ("matplotlib",),
    "bench": ("jiwer", "livekit", "pocketsphinx", "simpy", "sklearn", "whisper_normalizer"),
    "vllm": ("vllm", "torch"),
}  # fmt: skip
"""Modules of other distributions, by the extra that brings them."""
EXTRAS = {module: extra for extra, modules in EXTRA_MODULES.items() for module in modules}
"""The extra by module."""
SHARED = ("models", "client", "server", "spoken")
"""Extras that others include: a hint names the one that includes them."""


class PackageMissing(ModelError):
    """A model cannot be loaded: a package is not installed. fix: the command that installs it."""

    def __init__(self, adapter: str, reason: str, fix: str, licence: str = "") -> None:
        super().__init__(adapter, f"{reason}; run: {fix}{f' ({licence})' if licence else ''}")
        self.fix = fix


class NotInstalled(ImportError):
    """Something of ours cannot be imported: a package that an extra brings is not installed."""


def require(adapter: str, modules: Iterable[str], extra: str, licence: str = "") -> None:
    """Raise PackageMissing where a module that an adapter needs is not installed.

    extra: the one that brings them. licence: theirs, if it is not permissive.
    """
    for module in modules:
        if find_spec(module) is None:
            reason = "is not installed" if module == adapter else f"needs {module}, which is not installed"
            raise PackageMissing(adapter, reason, install(extra), licence)


@contextmanager
def needing(extra: str, what: str, besides: str = "") -> Iterator[None]:
    """Say which extra to install where an import in the block fails for want of a package.

    what: what needs the package. extra: the one to name for a package that several extras bring. besides:
    ends the message then. Raises NotInstalled; any other ImportError passes.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS or find_spec(module) is not None:  # a package that is there, and broken
            raise
        named = extra if EXTRAS[module] in SHARED else EXTRAS[module]
        hint = f"{what} needs {module}, which is not installed; run: {install(named)}"
        raise NotInstalled(hint + (besides if named == extra else ""), name=error.name) from error


def install(extra: str = "") -> str:
    """Return the command that installs this program, with ``extra`` if it is not empty."""
    wanted = f"[{extra}]" if extra else ""
    if is_checkout():
        return f"{pip()} install -e '.{wanted}'"
    return f"{pip()} install '{NAME}{wanted}'"


def pip() -> str:
    """Return the pip command to type: in a checkout, the one in the environment of ``make setup``."""
    return ".venv/bin/pip" if is_checkout() else "pip"


def is_checkout() -> bool:
    """Return whether this program runs from a checkout with an editable install."""
    # Look at every distribution of the name: an egg-info folder in the current one hides the other.
    for found in distributions(name=NAME):
        if text := found.read_text("direct_url.json"):
            if json.loads(text).get("dir_info", {}).get("editable"):
                return True
    return False
