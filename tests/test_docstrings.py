"""The contract of the docstrings: a sentence first, what cancelling does, one docstring for each constant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.cases import for_each
from support.paths import ROOT

FILES = sorted(path for folder in ("agent", "models", "pipeline") for path in (ROOT / folder).rglob("*.py"))
CANCELS = re.compile(r"\bcancel(ling|led)\b|nothing to cancel", re.IGNORECASE)
CLOSES = re.compile(r"\b(cancel(ling|led)|clos(ing|ed))\b", re.IGNORECASE)
ARRAY = re.compile(r"\b(NDArray|ndarray)\b")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def public(body: list[ast.stmt], of: str = "") -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Yield the public classes, functions and methods of a module, with their names.

    Overloads and setters are left out: another function of the same name has the docstring.
    """
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield of + node.name, node
            yield from public(node.body, f"{of}{node.name}.")
        elif isinstance(node, Function) and (not node.name.startswith("_") or node.name.startswith("__a")):
            decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
            if not decorators & {"overload", "setter"}:
                yield of + node.name, node


def is_generator(function: ast.AsyncFunctionDef) -> bool:
    """Return whether a coroutine is a generator that its caller closes, not a context manager."""
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    return yields and not any("contextmanager" in ast.unparse(each) for each in function.decorator_list)


@for_each(FILES)
def test_the_first_line_of_each_docstring_is_a_sentence(path: Path) -> None:
    module = tree(path)
    for where, node in [("the module", module), *public(module.body)]:
        text = ast.get_docstring(node)
        assert text, f"{where} has no docstring"
        assert text.splitlines()[0].endswith("."), f"{where}: {text.splitlines()[0]!r} is no sentence"


@for_each(FILES)
def test_each_coroutine_says_what_cancelling_it_does(path: Path) -> None:
    """A generator may say what closing it does instead: its caller cancels it by that."""
    module = tree(path)
    for where, node in public(module.body):
        if isinstance(node, ast.AsyncFunctionDef):
            says = CLOSES if is_generator(node) else CANCELS
            assert says.search(ast.get_docstring(node) or ""), f"{where} does not say what cancelling does"


@for_each(FILES)
def test_each_array_has_a_shape(path: Path) -> None:
    """``Samples`` names shape and dtype itself: float32 of shape (n,)."""
    module = tree(path)
    for where, node in public(module.body):
        if isinstance(node, Function):
            hints = [each.annotation for each in (*node.args.args, *node.args.kwonlyargs)]
            arrays = [hint for hint in [*hints, node.returns] if hint and ARRAY.search(ast.unparse(hint))]
            if arrays:
                assert "shape" in (ast.get_docstring(node) or ""), f"{where}: arrays without a shape"


@for_each(FILES)
def test_each_constant_has_a_line_and_a_docstring(path: Path) -> None:
    """A type variable needs none: it is used as its letter says."""
    body = tree(path).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        assert not any(isinstance(target, ast.Tuple) for target in targets), f"{ast.unparse(node)}: one each"
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if not any(each.isupper() and not each.startswith("_") for each in names):
            continue
        if node.value and ast.unparse(node.value).startswith("TypeVar("):
            continue
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        assert documented, f"{names[0]} has no docstring below it"
