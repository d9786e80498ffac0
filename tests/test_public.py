"""What the documentation and the examples import is public, and is there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
from support.paths import ROOT

PUBLIC = ("rejoinder", "rejoinder.actions", "rejoinder.client", "rejoinder.pipeline", "rejoinder.simulate")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FILES = {
    "examples/browser_embed.py": {"rejoinder.agent.server"},
    "examples/train_lora.py": {"rejoinder.models.weights.fetch"},
}
"""Private imports of examples: the scripts of our page, which are files; the file of the embedded model."""


IMPORT = re.compile(
    r"^ *(?:from rejoinder\S* import (?:\([^)]*\)|[^\n]*)|import rejoinder[^\n]*)", re.MULTILINE
)


def snippets(page: Path) -> str:
    return "\n".join(re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_readers_import_is_public(path: Path) -> None:
    code = path.read_text() if path.suffix == ".py" else snippets(path)
    imports = re.findall(
        r"^ *(?:from rejoinder\S* import (?:\([^)]*\)|[^\n]*)|import rejoinder[^\n]*)", code, re.M
    )
    allowed = FILES.get(str(path.relative_to(ROOT)), set())
    for node in ast.walk(ast.parse("\n".join(line.strip() for line in imports))):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= {*PUBLIC, *allowed}
        elif isinstance(node, ast.ImportFrom):
            assert node.module in PUBLIC
            exported = importlib.import_module(node.module).__all__
            assert {alias.name for alias in node.names} <= set(exported)


@pytest.mark.parametrize("module", PUBLIC)
def test_what_is_public_is_there_once(module: str) -> None:
    exported = importlib.import_module(module).__all__
    assert len(exported) == len(set(exported))
    assert all(hasattr(importlib.import_module(module), name) for name in exported)
