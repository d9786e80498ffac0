"""The wheel and the source distribution: what they hold, and a call that the installed wheel answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import serving as support
from support.paths import ROOT
from support.patience import PATIENCE
from support.serving import Talk, serving

from rejoinder.agent.server.own_server import command_line

FOLDERS = ("agent", "models", "pipeline")
NOT_CODE = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules", "out")
NOT_INSTALLED = {"agent/bench/gpu/gpu.sh"}
"""Files beside the code that are for a checkout only."""


@dataclass(frozen=True)
class Release:
    """The two files of a release."""

    wheel: Path
    source: Path


def run(*command: object, folder: Path) -> str:
    """Return what a command prints; it has to succeed."""
    line = [str(part) for part in command]
    ran = subprocess.run(line, capture_output=True, text=True, cwd=folder, timeout=6 * PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Build both, the wheel out of the source distribution, from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("release")
    shutil.copytree(ROOT, folder / "checkout", ignore=NOT_CODE)
    run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        folder / "dist",
        folder=folder / "checkout",
    )
    [wheel], [source] = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return Release(wheel, source)


@pytest.fixture(scope="module")
def python(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel, which sees no checkout."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, release.wheel, folder=folder)
    [packages] = folder.glob("lib/*/site-packages")
    # Only folders: what lies in them as .pth, such as the editable installation of the checkout, is not read.
    others = [path for path in sys.path if "site-packages" in path]
    (packages / "others.pth").write_text("\n".join(others))
    return python


@pytest.fixture
def out_of_the_wheel(python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve with the command that the wheel brought."""

    def installed(port: int, flags: dict[str, str | None]) -> list[str]:
        _, _, _, *arguments = command_line(port, flags)
        return [str(python.with_name("rejoinder")), *arguments]

    monkeypatch.setattr(support, "command_line", installed)
    yield


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_a_registry_would_take_them(release: Release) -> None:
    output = run(sys.executable, "-m", "twine", "check", "--strict", *vars(release).values(), folder=ROOT)
    assert output.count("PASSED") == 2


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(release: Release) -> None:
    files = [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
    here = {str(path) for path in files if (ROOT / path).is_file() and "__pycache__" not in path.parts}
    wanted = {f"rejoinder/{name}".replace("/agent/public/", "/") for name in here - NOT_INSTALLED}
    held = names(release.wheel)
    assert held == wanted
    for name in ("__init__.py", "__main__.py", "agent/py.typed", "models/py.typed", "pipeline/py.typed"):
        assert f"rejoinder/{name}" in held
    page = {name for name in held if name.startswith("rejoinder/agent/server/page/")}
    assert {Path(name).suffix for name in page} == {".css", ".html", ".js", ".svg"}
    assert {"rejoinder/pipeline/turns/turn_end.json", "rejoinder/models/weights/catalog.toml"} <= held


def test_the_source_distribution_holds_what_the_wheel_is_built_from(release: Release) -> None:
    with tarfile.open(release.source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "agent/server/page/index.html"} <= held
    assert not [name for name in held if name.startswith(("tests", ".", "build", "docs"))]


def test_the_wheel_names_its_licence_its_command_and_its_extras(release: Release) -> None:
    with zipfile.ZipFile(release.wheel) as archive:
        notes = {
            Path(name).name: archive.read(name).decode() for name in archive.namelist() if "-info/" in name
        }
    assert notes["LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "rejoinder = rejoinder.__main__:main" in notes["entry_points.txt"]
    required = [line for line in notes["METADATA"].splitlines() if line.startswith("Requires-Dist: ")]
    assert [line for line in required if "extra ==" not in line] == ["Requires-Dist: numpy>=2.0"]


def test_a_server_out_of_the_wheel_answers_a_call(
    python: Path, out_of_the_wheel: None, tmp_path: Path
) -> None:
    code = "import rejoinder, rejoinder.agent, rejoinder.models, rejoinder.pipeline, sys"
    code += "; print(*(m.__file__ for name, m in sys.modules.items() if name.startswith('rejoinder')))"
    places = run(python, "-c", code, folder=tmp_path).split()
    assert len(places) > 4
    for place in places:
        assert Path(place).is_relative_to(python.parent.parent), place
    with serving(tmp_path) as server, Talk(server) as talk:
        assert talk.turn()["status"] == "completed"
        said = [event["transcript"] for event in talk.seen if event["type"].endswith("audio_transcript.done")]
        assert said and "This is a sentence of the answer." in said[-1]
        assert (
            sum(len(event["delta"]) for event in talk.seen if event["type"].endswith("audio.delta")) > 10_000
        )
