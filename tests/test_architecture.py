"""Rules of the design that a program can check: imports, one clock, flat classes, room sizes, docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import FunctionType

from support.cases import for_each
from support.longest import LONGEST
from support.paths import ROOT

import rejoinder.pipeline

FILES = sorted(path for folder in ("pipeline", "models", "agent") for path in (ROOT / folder).rglob("*.py"))
PIPELINE = [path for path in FILES if path.is_relative_to(ROOT / "pipeline")]
FOLDERS = sorted({path.parent for path in FILES})
TEST_FOLDERS = sorted(
    {path.parent for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts}
)
MAX_LINES = 400
MAX_MODULES = 20
MAY_IMPORT = {
    "public": ("cli", "app", "simulate", "client", "server", "models", "pipeline"),
    "cli": (
        "bench",
        "simulate",
        "client",
        "server",
        "wires",
        "app",
        "recording",
        "settings",
        "models",
        "pipeline",
    ),
    "bench": ("simulate", "client", "server", "wires", "settings", "models", "pipeline"),
    "simulate": ("client", "wires", "app", "recording", "settings", "models", "pipeline"),
    "client": ("wires", "settings", "models", "pipeline"),
    "server": ("metrics", "wires", "app", "recording", "settings", "models", "pipeline"),
    "metrics": ("wires", "app", "settings", "models", "pipeline"),
    "wires": ("app", "recording", "settings", "models", "pipeline"),
    "recording": ("settings", "models", "pipeline"),
    "app": ("settings", "models", "pipeline"),
    "settings": ("models", "pipeline"),
    "models": ("pipeline",),
    "pipeline": (),
}
"""The layers, from the outermost to the innermost. A layer also imports itself."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> set[str]:
    """Return the dotted names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def under(names: set[str], package: str) -> set[str]:
    return {dotted for dotted in names if f"{dotted}.".startswith(f"{package}.")}


@for_each(PIPELINE)
def test_the_pipeline_needs_only_itself_the_standard_library_and_numpy(path: Path) -> None:
    names = imported(path)
    foreign = names - under(names, "rejoinder.pipeline") - under(names, "numpy")
    assert {dotted for dotted in foreign if dotted.split(".")[0] not in sys.stdlib_module_names} == set()


def layer(dotted: str) -> str:
    """Return the layer of a module: a folder of ``agent/``, the files beside those, or a top-level folder."""
    _, top, *rest = f"{dotted}..".split(".")[:3]
    if top != "agent":
        return top
    return rest[0] if rest[0] in MAY_IMPORT else "settings"


@for_each(FILES)
def test_imports_point_inwards(path: Path) -> None:
    own = layer("rejoinder." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    used = {layer(dotted) for dotted in under(imported(path), "rejoinder")}
    assert used <= {own, *MAY_IMPORT[own]}


@for_each([*FOLDERS, *TEST_FOLDERS])
def test_a_folder_holds_no_more_than_twenty_modules(folder: Path) -> None:
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert len(modules) <= MAX_MODULES


@for_each(FOLDERS)
def test_every_folder_is_installed(folder: Path) -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    package = "rejoinder." + ".".join(folder.relative_to(ROOT).parts)
    assert (package if folder.name != "public" else "rejoinder") in packages


@for_each(PIPELINE)
def test_the_loop_is_the_only_clock(path: Path) -> None:
    """The engine may measure how long its thread is busy: a thread has no loop."""
    allowed = {"time"} if path.name == "engine.py" else set()
    assert {dotted.split(".")[0] for dotted in imported(path)} & {"time", "datetime"} <= allowed
    calls = [
        node.attr
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
    ]
    assert set(calls) <= {"perf_counter"}


WAIT = {
    "pipeline/call_timer.py",
    "pipeline/channel.py",
    "pipeline/caching/answers.py",
    "pipeline/caching/search.py",
    "pipeline/context/summaries.py",
    "pipeline/session.py",
    "pipeline/engines/engine.py",
    "pipeline/engines/jobs.py",
    "pipeline/guarding/guard.py",
    "pipeline/guarding/guarding.py",
    "pipeline/listening/hearing.py",
    "pipeline/listening/transcriber.py",
    "pipeline/listening/user_audio.py",
    "pipeline/listening/recording.py",
    "pipeline/replying/text/answer_filter.py",
    "pipeline/overlap_timer.py",
    "pipeline/replying/cancelled_tasks.py",
    "pipeline/replying/commit_gate.py",
    "pipeline/replying/current_reply.py",
    "pipeline/replying/disconnection.py",
    "pipeline/replying/generation.py",
    "pipeline/replying/out_of_band.py",
    "pipeline/replying/output.py",
    "pipeline/replying/prepared.py",
    "pipeline/replying/prompt_warmer.py",
    "pipeline/replying/reply.py",
    "pipeline/replying/retrieval.py",
    "pipeline/replying/running.py",
    "pipeline/replying/stages.py",
    "pipeline/interfaces.py",
    "agent/wires/call.py",
    "agent/wires/departure.py",
    "agent/wires/socket.py",
    "agent/wires/transport.py",
    "agent/wires/traces.py",
    "agent/wires/audiosocket/server.py",
    "agent/wires/phone/line.py",
    "agent/wires/realtime/resumable_socket.py",
    "agent/wires/wyoming/answers.py",
    "agent/wires/wyoming/server.py",
}
"""What waits in the pipeline and the wires. Everything else there decides."""
DECIDE = [
    path for path in FILES if name(path).startswith(("pipeline/", "agent/wires/")) and name(path) not in WAIT
]


@for_each(DECIDE)
def test_decisions_do_not_wait(path: Path) -> None:
    """What decides has neither ``async`` nor a loop."""
    assert "asyncio" not in imported(path)
    assert not [node for node in ast.walk(tree(path)) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]


@for_each(sorted(WAIT))
def test_modules_that_wait_exist(waits: str) -> None:
    assert (ROOT / waits).is_file()


@for_each(LONGEST)
def test_test_files_that_run_first_exist(path: str) -> None:
    assert (ROOT / "tests" / path).is_file()


@for_each(FILES)
def test_the_state_of_the_floor_is_written_by_the_floor_only(path: Path) -> None:
    stored = [
        ast.unparse(node)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    assert not [target for target in stored if re.search(r"\b_?floor\.", target)]


FLAT = {"Protocol", "Generic", "Exception", "Enum", "IntEnum", "TypedDict", "PipelineError", "str"}
"""Bases that the pipeline's classes may have; whatever has another one is more than one base deep."""


@for_each(PIPELINE)
def test_no_class_is_more_than_one_base_deep(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).split("[")[0] for base in node.bases]
            assert len(bases) <= 1, node.name
            assert set(bases) <= FLAT, node.name


@for_each(FILES)
def test_a_file_is_one_room(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


@for_each(rejoinder.pipeline.__all__)
def test_exported_names_have_docstrings(exported: str) -> None:
    thing = getattr(rejoinder.pipeline, exported)
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return  # a constant or a union of types: its docstring stands below it
    assert thing.__doc__, exported
    assert not thing.__doc__.startswith(f"{exported}("), f"{exported} has only the docstring of a dataclass"
    for method, body in vars(thing).items() if inspect.isclass(thing) else ():
        if isinstance(body, FunctionType | property) and not method.startswith("_"):
            assert body.__doc__, f"{exported}.{method}"


def test_exported_names_exist_once() -> None:
    exported = rejoinder.pipeline.__all__
    assert len(exported) == len(set(exported))
    assert all(hasattr(rejoinder.pipeline, name) for name in exported)


TWICE = {
    "Call": "the agent's, the client's, the simulation's and the wires': the first three are exported",
    "Tool": "the agent's, and a function in a text request",
    "Line": "the simulation's is exported; the other one is the connection of AudioSocket",
    "ReplyDone": "an event of the pipeline, and the client's own of the same moment",
    "ReplyStarted": "an event of the pipeline, and the client's own of the same moment",
    "SpeechStarted": "an event of the pipeline, and the client's own of the same moment",
    "Connection": "the client's connection with its server, and one connection of Wyoming",
    "Reply": "a reply of the agent, and a message of raw audio",
    "Audio": "of Realtime's settings, and of a carrier's messages",
    "Format": "of Wyoming's audio, and of a carrier's messages",
    "Hear": "a command of a call, and a request of Wyoming",
    "Pcm": "a format of Realtime, and the protocol of raw audio",
    "Played": "a message of raw audio, and of a carrier",
}
"""Names of several classes, and why."""


def test_a_class_name_has_one_meaning() -> None:
    names = [node.name for path in FILES for node in tree(path).body if isinstance(node, ast.ClassDef)]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= TWICE.keys()
