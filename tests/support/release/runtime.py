"""What the extras of a server bring, as it is installed here, with the licence of each distribution.

Tools for tests, benches and this site are left out, and so are the extras of Ray and of CUDA, which are not
installed where this runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, requires

from packaging.requirements import Requirement

OF_SERVERS = (
    "all", "guard", "llama", "mic", "nvml", "otel", "record", "redis",
)  # fmt: skip
"""The extras that a server in use may have."""


def plain(name: str) -> str:
    """Return the name of a distribution in its one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(extras: Iterable[str] = OF_SERVERS) -> set[str]:
    """Return the names of all distributions that the extras bring. What is not installed here is left out."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [("rejoinder", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            continue
        found.add(name)
        for one in map(Requirement, needed):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += [(plain(one.name), more) for more in ("", *one.extras)]
    return found


def licence(name: str) -> str:
    """Return what a distribution says of its licence: an SPDX expression, or its own words."""
    about = metadata(name)
    if expression := about.get("License-Expression"):
        return str(expression)
    classified = [
        one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or [] if "License ::" in one
    ]
    words = (about.get("License") or "").strip()
    return " AND ".join(classified) or words.splitlines()[0] if classified or words else ""
