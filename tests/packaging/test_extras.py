"""What each extra brings, and what is said where one is missing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.paths import ROOT
from support.patience import PATIENCE

from rejoinder.models import hints
from rejoinder.models.hints import EXTRA_MODULES, EXTRAS, NotInstalled, PackageMissing, needing
from rejoinder.models.registry import MODULES, adapter, create
from rejoinder.models.threads import Threads

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = sorted(path for folder in ("pipeline", "models", "agent") for path in (ROOT / folder).rglob("*.py"))
DISTRIBUTIONS = {
    "docstring_parser": "docstring-parser",
    "hibari": "hibari-tts",
    "markdown_it": "markdown-it-py",
    "opentelemetry": "opentelemetry-sdk",
    "piper": "piper-tts",
    "pynvml": "nvidia-ml-py",
    "sklearn": "scikit-learn",
    "torch": "vllm",
    "typing_extensions": "typing-extensions",
    "yaml": "pyyaml",
}
"""Distributions that are not called like their module; torch comes with vLLM."""
TRANSITIVE = {"pydantic_core", "transformers", "xgrammar"}
"""What pydantic and vLLM bring and bind to a version of their own."""
BROUGHT = {"markdown_it"}
"""What rich, which is in the extra server, brings."""

ONLY = """
import sys

class Only:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        return self._finder.find_spec(name, path, target) if {allowed} else None

    def __getattr__(self, name):
        return getattr(self._finder, name)

sys.meta_path[:] = [Only(finder) for finder in sys.meta_path]
"""
CORE = "top in sys.stdlib_module_names or top in ('numpy', 'rejoinder')"
"""What a core-only installation can import."""


def extra(name: str) -> set[str]:
    """Return the distributions of an extra, with those of the extras that it includes."""
    found = set()
    for line in PROJECT["optional-dependencies"][name]:
        if line.startswith("rejoinder["):
            for included in line.removeprefix("rejoinder[").removesuffix("]").split(","):
                found |= extra(included)
        else:
            found.add(line.translate({ord(char): " " for char in "<>=!,["}).split()[0])
    return found


def with_extras(*names: str) -> str:
    """Return the condition for what these extras bring, and for what is in no extra of ours."""
    present = set().union(*map(extra, names))
    absent = {module for module in EXTRAS if distribution(module) not in present} - BROUGHT
    return f"top not in {absent!r}"


def distribution(module: str) -> str:
    return DISTRIBUTIONS.get(module, module.replace("_", "-"))


def run(code: str, allowed: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code where only what is allowed can be imported."""
    command = [sys.executable, "-W", "error", "-c", ONLY.replace("{allowed}", allowed) + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=3 * PATIENCE)


MAIN = "from rejoinder.__main__ import main; main()"


def test_the_core_needs_numpy_only() -> None:
    assert [line.split(">")[0] for line in PROJECT["dependencies"]] == ["numpy"]


@pytest.mark.parametrize("name", EXTRA_MODULES)
def test_a_hint_names_the_extra_that_brings_the_package(name: str) -> None:
    for module in EXTRA_MODULES[name]:
        assert distribution(module) in extra(name), module


def test_every_package_that_is_imported_is_in_an_extra() -> None:
    imported: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    foreign = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"rejoinder", "numpy"}
    assert foreign - TRANSITIVE - EXTRAS.keys() == set()


@pytest.mark.parametrize("name", MODULES)
def test_an_adapter_has_its_packages_in_the_extra_that_it_names(name: str) -> None:
    found = adapter(name)
    assert found and found.name == name and (found.packages or name == "scripted")
    if found.packages:
        assert {distribution(module) for module in found.packages} <= extra(found.extra or name)


def test_make_installs_the_extra_all() -> None:
    made = {"server", "local", "openai", "reload", "piper", "hibari"}
    assert extra("all") == set().union(*map(extra, made))
    makefile = (ROOT / "Makefile").read_text()
    assert "ALWAYS := server,local,openai,reload\n" in makefile and "EXTRAS ?= piper,hibari\n" in makefile


CALL = """
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.simulate import Caller, check
import rejoinder.pipeline

call = Caller(ScriptedLlm(["It is sunny."])).says("what is the weather").hears_out().call()
print(call.history)
others = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(sorted(name for name in others if not name.startswith("_")))
"""


def test_the_pipeline_and_the_simulated_callers_run_with_numpy_alone(tmp_path: Path) -> None:
    ran = run(CALL, CORE, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    history, others = ran.stdout.splitlines()
    assert "It is sunny." in history
    assert ast.literal_eval(others) == ["numpy", "rejoinder"]


@pytest.mark.parametrize("arguments", [(), ("--help",), ("serve",), ("doctor",)])
def test_the_command_says_in_one_sentence_which_extra_it_needs(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    ran = run(MAIN, CORE, *arguments, folder=tmp_path)
    assert ran.returncode == 1 and ran.stdout == ""
    start = "error: the command rejoinder needs typer, which is not installed; run: "
    assert ran.stderr.startswith(start) and ran.stderr.count("\n") == 1, ran.stderr
    assert "[all]'" in ran.stderr and "[server]' for a server without models" in ran.stderr


@pytest.mark.parametrize(
    ("code", "start", "named"),
    [
        ("from rejoinder.client import connect", "rejoinder.client needs ", "[client]"),
        ("from rejoinder import connect", "rejoinder.connect needs ", "[client]"),
        ("from rejoinder import open_models", "rejoinder.open_models needs ", "[local]"),
        ("from rejoinder import Specs", "rejoinder.Specs needs ", "[local]"),
    ],
)
def test_an_import_says_which_extra_it_needs(code: str, start: str, named: str, tmp_path: Path) -> None:
    ran = run(code, CORE, folder=tmp_path)
    last = ran.stderr.splitlines()[-1]
    assert ran.returncode == 1
    assert last.startswith(f"rejoinder.models.hints.NotInstalled: {start}") and named in last, last


@pytest.mark.parametrize(
    ("code", "extras"),
    [
        ("from rejoinder.client import connect", ("client",)),
        ("from rejoinder import connect", ("client",)),
        ("from rejoinder import open_models, Specs", ("models",)),
        ("import rejoinder.agent.server.serving", ("server",)),
        ("import rejoinder.agent.client.devices", ("mic",)),
    ],
)
def test_an_extra_is_enough_for_what_it_is_for(code: str, extras: tuple[str, ...], tmp_path: Path) -> None:
    ran = run(code, with_extras(*extras), folder=tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "arguments", [("--help",), ("bench", "--help"), ("serve", "--print-config"), ("key",)]
)
def test_the_extra_server_is_enough_for_the_command(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ran = run(MAIN, with_extras("server"), *arguments, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_doctor_names_the_extras_that_the_configuration_needs(tmp_path: Path) -> None:
    ran = run(MAIN, with_extras("server"), "doctor", "--json", folder=tmp_path)
    assert ran.returncode == 1, ran.stderr
    fixes = json.loads(ran.stdout)["fixes"]
    assert [fix for fix in fixes if fix.endswith("[local]'")] and [fix for fix in fixes if "[piper]" in fix]
    assert not [fix for fix in fixes if "[llama]" in fix or "set stt to" in fix], fixes


def test_serve_names_the_extra_of_the_first_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    ran = run(MAIN, with_extras("server"), "serve", "--port", "0", folder=tmp_path)
    assert ran.returncode == 1
    assert "silero: needs onnxruntime, which is not installed; run: " in ran.stderr, ran.stderr
    assert "[local]'" in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("silero", "local"),
        ("smart-turn", "local"),
        ("whisper:tiny.en", "local"),
        ("whisper:large-v3-turbo", "local"),
        ("ort", "local"),
        ("llama", "llama"),
        ("openai:http://localhost/v1#m", "openai"),
        ("piper", "piper"),
        ("hibari", "hibari"),
        ("vllm:/", "vllm"),
    ],
)
def test_an_adapter_names_its_extra(spec: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "find_spec", lambda name: None)
    monkeypatch.setattr(hints, "is_checkout", lambda: False)
    with pytest.raises(
        PackageMissing, match=rf"not installed; run: pip install 'rejoinder\[{named}\]'"
    ) as caught:
        create(spec, Threads(stt=1, llm=1, tts=1))
    assert caught.value.fix == f"pip install 'rejoinder[{named}]'"


def test_only_a_package_that_is_not_there_is_taken_for_a_missing_extra(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught, needing("server", "this"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(caught.value, NotInstalled)
    with pytest.raises(ModuleNotFoundError, match=r"typer\.nothing") as caught, needing("server", "this"):
        import typer.nothing  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(caught.value, NotInstalled)
    (tmp_path / "typer.py").write_text("import what_it_needs")
    ran = run("sys.path.insert(0, '.')\n" + MAIN, "True", folder=tmp_path)
    assert ran.returncode == 1 and "Traceback" in ran.stderr
    assert ran.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'what_it_needs'"


def test_a_package_of_one_extra_alone_is_named_by_that_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "find_spec", lambda name: None)
    monkeypatch.setattr(hints, "is_checkout", lambda: False)
    for module, named in (("pocketsphinx", "bench"), ("rich", "all"), ("huggingface_hub", "local")):
        with pytest.raises(NotInstalled, match=rf"^this needs {module}, .*'rejoinder\[{named}\]'") as caught:
            with needing("all", "this"):
                raise ModuleNotFoundError(name=module)
        assert caught.value.name == module
