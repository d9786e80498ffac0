"""Finds the code snippets in the documentation, and checks that they run.

The info string of a block (the words behind its fence) says how to check it. Each fenced block needs one:

- ``python``: a whole program. It runs beside a server with scripted models, where ``question.wav`` is.
  127.0.0.1:8080 (any port of 80..) becomes the address of that server. One that reads ``sys.argv`` is given
  the address, ``question.wav`` and ``answer.wav``.
- ``python of=FILE`` and ``js of=FILE``: an excerpt of a program that is run elsewhere, such as with a client
  that is not installed here. Its syntax is checked, and each name in it is one of that program.
- ``js``: its syntax is checked.
- ``sh``, and indented blocks, which have no info string: commands. ``console``: those behind ``$``, with what
  they print.
- ``toml``: a configuration, which is loaded; ``toml of=FILE``: another file, which has the same tables.
- ``json``: is parsed; ``json of=realtime`` or ``of=pcm``: messages of a client, one a line, for the wire's
  own parser.
- ``yaml``: a call for ``rejoinder simulate``, which is read.
- ``mermaid``: a diagram; Python files that it names exist.
- ``text``: what a program prints, formulas, and files of other programs. Is not checked.

Any other info string is an error. Commands in running text are checked too, but may lack an argument.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from support.forks.forking import run_forked
from support.paths import ROOT
from support.patience import PATIENCE
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.commands import loaded
from rejoinder.agent.config import load, unknown_variables
from rejoinder.agent.simulate.story import WrongStory, read_story
from rejoinder.agent.wires.pcm import messages as pcm_messages
from rejoinder.agent.wires.realtime.reading import read_message

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples" / "README.md",
]
ADDRESS = re.compile(r"127\.0\.0\.1:80\d\d\b")
SECONDS = 3 * PATIENCE
"""Time limit of a program; with the real models it takes about ten seconds."""


class Wrong(Exception):
    """A snippet does not run. The message gives the reason."""


@dataclass(frozen=True)
class Snippet:
    """A block of code, or a command in the text: its page, first line, info string and code."""

    page: str
    line: int
    kind: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Place:
    """The environment of programs: the address of a server, as HOST:PORT, and a folder."""

    server: str
    folder: Path


FILES = ("load.json", "overhead.json", "seen.json.gz")
"""Files that some commands in the documentation write and later ones read."""
INLINE = re.compile(r"(\w+=\S+ )*(\.venv/bin/)?(rejoinder|make|python|pytest) ")


def found_in(path: Path) -> Iterator[Snippet]:
    """Yield the snippets of a page."""
    page, line = str(path.relative_to(ROOT)), 0
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text()):
        line = token.map[0] + 1 if token.map else line
        if token.type == "fence":
            yield Snippet(page, line, token.info.strip(), token.content)
        elif token.type == "code_block":
            yield Snippet(page, line, "sh", token.content)
        for child in token.children or ():
            line += child.type in ("softbreak", "hardbreak")
            if child.type == "code_inline" and INLINE.match(child.content):
                yield Snippet(page, line, "in the text", child.content)


def check(snippet: Snippet, place: Place) -> str:
    """Raise Wrong if a snippet does not work for its reader. Return the output of a program, else ""."""
    kind, _, program = snippet.kind.partition(" of=")
    if kind not in CHECKS:
        known = ", ".join(CHECKS)
        raise Wrong(f"its info string {snippet.kind!r} is none of {known}; text is not checked")
    return CHECKS[kind](snippet.code, program, place) or ""


# --- programs -----------------------------------------------------------------------------------------------


def _python(code: str, program: str, place: Place) -> str:
    if program:
        try:
            compile(code, "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            raise Wrong(str(error)) from None
        _is_part(code, program)
        return ""
    arguments = [f"http://{place.server}", "question.wav", "answer.wav"] if "sys.argv" in code else []
    file = place.folder / "snippet.py"
    file.write_text(ADDRESS.sub(place.server, code))
    done = run_forked(arguments, place.folder, {**os.environ, "PYTHONWARNINGS": "error"}, file)
    if done.returncode:
        raise Wrong(f"it ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if "print(" in code and not done.stdout:
        raise Wrong("it prints nothing")
    return done.stdout


def _js(code: str, program: str, place: Place) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    file = place.folder / "snippet.mjs"
    file.write_text(code)
    _run([node, "--check", str(file)], place.folder)
    if program:
        _is_part(code, program)


def _is_part(code: str, program: str) -> None:
    """Raise Wrong if an excerpt uses a name that the program lacks; ignores comments and strings."""
    path = ROOT / program
    if not path.is_file():
        raise Wrong(f"there is no {program}")
    outside = re.sub(r"""(["'`]).*?\1|#.*|//.*""", "", code)
    if strange := set(re.findall(r"[^\W\d]\w*", outside)) - set(re.findall(r"\w+", path.read_text())):
        raise Wrong(f"{program} has no {', '.join(sorted(strange))}")


def _run(command: list[str], folder: Path) -> str:
    """Run a program to its end and return its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise Wrong(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# --- data ---------------------------------------------------------------------------------------------------


def _toml(code: str, program: str, place: Place) -> None:
    if program:
        tomllib.loads(code)
        tables = re.findall(r"^\[.*\]$", (ROOT / program).read_text(), re.MULTILINE)
        if strange := set(re.findall(r"^\[.*\]$", code, re.MULTILINE)) - set(tables):
            raise Wrong(f"{program} has no {', '.join(strange)}")
        return
    file = place.folder / "snippet.toml"
    file.write_text(code)
    try:
        load({}, file)
    except Exception as error:
        raise Wrong(str(error)) from None


WIRES: dict[str, Callable[[str], object]] = {
    "realtime": read_message,
    "pcm": pcm_messages.parse,
    "": json.loads,
}


def _json(code: str, program: str, place: Place) -> None:
    if program not in WIRES:
        raise Wrong(f"{program} is no wire; there are: {', '.join(WIRES)}")
    for message in code.splitlines() if program else [code]:
        try:
            WIRES[program](message)
        except Exception as error:
            raise Wrong(f"{message}: {error}") from None


def _yaml(code: str, program: str, place: Place) -> None:
    file = place.folder / "snippet.yaml"
    file.write_text(code)
    try:
        read_story(file)
    except WrongStory as error:
        raise Wrong(str(error)) from None


def _mermaid(code: str, program: str, place: Place) -> None:
    if strange := [name for name in re.findall(r"[\w/]+\.py\b", code) if not (ROOT / name).is_file()]:
        raise Wrong(f"there is no {', '.join(strange)}")


def _text(code: str, program: str, place: Place) -> None:
    pass


# --- commands -----------------------------------------------------------------------------------------------


def _sh(code: str, program: str, place: Place) -> None:
    for words in _commands(code.splitlines()):
        _command(words, place)


def _in_the_text(code: str, program: str, place: Place) -> None:
    try:
        _sh(code, program, place)
    except Wrong as wrong:
        if type(wrong.__cause__).__name__ != "MissingParameter":  # it names the command only
            raise


def _console(code: str, program: str, place: Place) -> None:
    lines, found = code.splitlines(), False
    for number, line in enumerate(lines):
        if line.startswith("$ "):
            found = True
            words = next(_commands([line[2:], *lines[number + 1 :]]))
            _command(words, place)
    if not found:
        raise Wrong("no line begins with $")


def _commands(lines: list[str]) -> Iterator[list[str]]:
    """Yield the words of each command; quotes and a trailing backslash continue on the next line."""
    whole = ""
    for line in lines:
        whole += re.sub(r"(^|\s)#.*", "", line)
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        try:
            words = shlex.split(whole)
        except ValueError:
            whole += "\n"
            continue
        whole, command = "", list[str]()
        for word in [*words, ";"]:
            if word not in (";", "&&", "||", "|"):
                command.append(word)
            elif command:
                yield command
                command = []
    if whole:
        raise Wrong(f"it does not end: {whole}")


def _command(words: list[str], place: Place) -> None:
    environment: dict[str, str] = {}
    while words and re.match(r"\w+=", words[0]):
        name, _, environment[name] = words.pop(0).partition("=")
    if unknown := unknown_variables(environment):
        raise Wrong(unknown)
    if not words:  # only sets variables
        return
    name = words[0].removeprefix(".venv/bin/").removeprefix("./")
    if name in PROGRAMS:
        PROGRAMS[name](words[1:], environment, place)
    elif (ROOT / name).is_file() and os.access(ROOT / name, os.X_OK):
        _run(["bash", "-n", name], ROOT)
    else:
        raise Wrong(f"{name}: how is this command to be checked? There are: {', '.join(PROGRAMS)}; or files")


@cache
def _idle_command() -> Any:
    """Return the real command line without its callbacks: it parses all arguments and does nothing."""
    command = loaded(app)
    waiting: list[Any] = [command]
    while waiting:
        one = waiting.pop()
        one.callback = None
        waiting += getattr(one, "commands", {}).values()
    return command


def _rejoinder(words: list[str], environment: dict[str, str], place: Place) -> None:
    """Parse the arguments with the real command line; for ``serve``, also load the settings."""
    try:
        _idle_command().main(words, "rejoinder", standalone_mode=False)
    except Exception as error:
        reason = error.format_message() if hasattr(error, "format_message") else str(error)
        raise Wrong(f"rejoinder {shlex.join(words)}: {reason}") from error
    if words[0] == "serve" and "--config" not in words:
        done = CliRunner(env=environment).invoke(app, [*words, "--print-config"])
        if done.exit_code:
            raise Wrong(f"rejoinder {shlex.join(words)}: {done.output}")


def _export(words: list[str], environment: dict[str, str], place: Place) -> None:
    """Check that the variables are ours, and start ``serve`` with them as far as to its settings."""
    given = {name: value for name, _, value in (word.partition("=") for word in words)}
    if unknown := unknown_variables(given):
        raise Wrong(unknown)
    _rejoinder(["serve"], given, place)


def _make(words: list[str], environment: dict[str, str], place: Place) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, given, _ = word.partition("=")
        if given and not re.search(rf"^{name} *\??=", makefile, re.MULTILINE):
            raise Wrong(f"the Makefile knows no {name}")
    _run(["make", "--dry-run", *words], ROOT)


def _python_command(words: list[str], environment: dict[str, str], place: Place) -> None:
    if words[:2] == ["-m", "pytest"]:
        _pytest(words[2:], environment, place)
    elif words[:2] == ["-m", "rejoinder"]:
        _rejoinder(words[2:], environment, place)
    elif not (ROOT / words[0]).is_file():
        raise Wrong(f"there is no {words[0]}")


def _pytest(words: list[str], environment: dict[str, str], place: Place) -> None:
    for word in words:
        if not word.startswith("-") and not [*ROOT.glob(word)]:
            raise Wrong(f"there is no {word}")


def _pip(words: list[str], environment: dict[str, str], place: Place) -> None:
    """Check that the extras exist; install nothing."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if match := re.fullmatch(r"(?:\.|rejoinder)\[(.+)\]", word):
            if missing := set(match[1].split(",")) - set(extras):
                raise Wrong(f"there is no extra {', '.join(missing)}")


def _curl(words: list[str], environment: dict[str, str], place: Place) -> None:
    if (curl := shutil.which("curl")) is None:
        pytest.skip("curl is not installed")
    if not _run(
        [curl, "--max-time", "20", *(ADDRESS.sub(place.server, word) for word in words)], place.folder
    ):
        raise Wrong("the server answers nothing")


PROGRAMS: dict[str, Callable[[list[str], dict[str, str], Place], None]] = {
    "rejoinder": _rejoinder,
    "export": _export,
    "make": _make,
    "python": _python_command,
    "pytest": _pytest,
    "pip": _pip,
    "curl": _curl,
}

CHECKS: dict[str, Callable[[str, str, Place], str | None]] = {
    "python": _python,
    "js": _js,
    "sh": _sh,
    "in the text": _in_the_text,
    "console": _console,
    "toml": _toml,
    "json": _json,
    "yaml": _yaml,
    "mermaid": _mermaid,
    "text": _text,
}
