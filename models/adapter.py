"""What an adapter says of itself: its name, packages and weights, and how it is opened.

Each adapter has one ``ADAPTER`` in its own module, which ``registry.py`` finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rejoinder.models.hints import require
from rejoinder.models.specs import is_path
from rejoinder.pipeline.errors import ModelError

if TYPE_CHECKING:  # its settings need pydantic, and a scripted model only numpy
    from rejoinder.models.placement import Placement


@dataclass(frozen=True, slots=True)
class Packaged:
    """Weights that are part of a Python package, so there is nothing to fetch or compare.

    package: the name of the distribution. maker, origin: who made the model, and the address of it.
    """

    package: str
    purpose: str
    licence: str
    maker: str
    origin: str


@dataclass(frozen=True, slots=True)
class Adapter:
    """The description of one adapter.

    name: the part of a spec before the colon; the rest is its argument. open: takes the result of ``find``,
    the number of threads and the placement, and returns the model; it raises ModelError.

    packages: the modules of other distributions that it needs. extra: the extra that brings them, if it does
    not have the adapter's name. licence: that of the packages, if it is not permissive.

    weights: the name of its weights in the catalog, with ``{}`` for the argument; "" if it has none there.
    default: the argument that a spec without one stands for. suffix: the end of the name of the file that is
    opened; "" for the whole folder. packaged: weights that are in a package instead.

    share: the field of ``Threads`` that holds its number of threads.

    finder: takes the argument and returns what ``open`` needs, if that is not a path of ``weights``. names:
    returns the arguments that it knows, if those are not in the catalog. named: takes the argument and
    returns the name of the weights in it. hub: takes that name and returns what ``rejoinder models fetch``
    calls it, if it is fetched from the hub; otherwise None.
    """

    name: str
    open: Callable[[Any, int, Placement], Any]
    packages: tuple[str, ...] = ()
    extra: str = ""
    licence: str = ""
    weights: str = ""
    default: str = ""
    suffix: str = ""
    packaged: Packaged | None = None
    share: str = "small"
    finder: Callable[[str], Any] | None = None
    names: Callable[[], list[str]] | None = None
    named: Callable[[str], str] = str
    hub: Callable[[str], str | None] = lambda name: None

    def require(self) -> None:
        """Raise PackageMissing if a package that the adapter needs is not installed."""
        require(self.name, self.packages, self.extra or self.name, self.licence)

    def find(self, argument: str) -> Any:
        """Return what ``open`` needs, without loading the model. Raises ModelError."""
        self.require()
        return self.finder(argument) if self.finder else self.path(argument)

    def path(self, argument: str) -> Path:
        """Return the folder of the weights, or the file in it that ends in ``suffix``. Raises ModelError."""
        from rejoinder.models.weights.catalog import catalog
        from rejoinder.models.weights.fetch import locate

        name = ""
        if is_path(argument):
            path = Path(argument).expanduser()
            if not path.exists():
                raise ModelError(self.name, f"there is no file or folder {path}: mend the path")
        elif argument and "{}" not in self.weights:
            raise ModelError(
                self.name, f"there is one model only: leave {argument!r} out, or write a path with a /"
            )
        else:
            name = self.weights_name(argument) or argument
            path = locate(name)
        if not self.suffix or path.is_file():
            return path
        listed = catalog().get(name)  # the folder may also hold files that an older version fetched
        for file in [path / one.name for one in listed.files] if listed else sorted(path.iterdir()):
            if file.name.endswith(self.suffix):
                return file
        raise ModelError(self.name, f"there is no *{self.suffix} in {path}")

    def weights_name(self, argument: str) -> str | None:
        """Return the catalog's name of the weights that an argument stands for, None if there is none."""
        name = self.named(argument)
        return self.weights.format(name or self.default) if self.weights and not is_path(name) else None

    def known(self) -> list[str]:
        """Return the arguments that stand for weights in the catalog or in a package."""
        from rejoinder.models.weights.catalog import catalog

        if self.names:
            return self.names()
        start, several, _ = self.weights.partition("{}")
        return [name.removeprefix(start) for name in catalog() if several and name.startswith(start)]
