"""The licences of what a server needs: permissive ones, and exceptions by name, each with its reason."""

from __future__ import annotations

import re

import pytest
from support.release.runtime import closure, licence

PERMISSIVE = {
    "0BSD", "3-Clause BSD License", "Apache Software License", "Apache-2.0", "BSD License", "BSD-2-Clause",
    "BSD-3-Clause", "CC0-1.0", "ISC License (ISCL)", "MIT", "MIT License", "MIT-0", "MIT-CMU", "PSF-2.0",
    "Python Software Foundation License", "Zlib",
}  # fmt: skip
"""Licences that ask for no more than a notice: SPDX's names, and those of older classifiers."""
EXCEPTIONS = {
    "certifi": "MPL-2.0: a list of certificates, used unchanged",
    "piper-tts": "GPL-3.0-or-later: in an extra of its own, outside the permissive core (packaging.md)",
    "soxr": "LGPL-2.1-or-later: a module of its own, which a user can replace; used unchanged",
    "tqdm": "MPL-2.0 AND MIT: used unchanged",
}
"""Distributions with another licence, and why they are here all the same."""


def permissive(expression: str) -> bool:
    """Return whether one may choose permissive licences only: of alternatives, one is enough."""
    return any(
        all(part.strip() in PERMISSIVE for part in re.split(r" AND |;", choice))
        for choice in expression.split(" OR ")
    )


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("BSD-3-Clause AND 0BSD AND Zlib", True),
        ("MIT AND MPL-2.0", False),
        ("GPL-3.0-or-later", False),
        ("AGPL-3.0-only OR SSPL-1.0", False),
        ("", False),
    ],
)
def test_licence_is_permissive(expression: str, good: bool) -> None:
    assert permissive(expression) is good


def test_everything_that_a_server_needs_may_be_used_freely() -> None:
    names = closure()
    assert {"numpy", "uvicorn", "websockets", "onnxruntime", "openai", "rejoinder"} <= names
    assert not {"pytest", "mypy", "hypothesis"} & names, "tools are no part of a server"
    others = {name: licence(name) for name in names if not permissive(licence(name))}
    assert others.keys() <= EXCEPTIONS.keys(), others
