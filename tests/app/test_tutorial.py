"""The tutorial of agents: its files and commands, as a reader uses them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import speech
from support.paths import ROOT
from support.patience import PATIENCE

PAGE = (ROOT / "docs" / "start" / "agent.md").read_text()
BLOCKS = dict(re.findall(r"```(python|yaml)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the two files that the page tells to save."""
    (tmp_path / "my_agent.py").write_text(BLOCKS["python"])
    (tmp_path / "my_call.yaml").write_text(BLOCKS["yaml"])
    return tmp_path


def rejoinder(folder: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rejoinder", *arguments]
    return subprocess.run(
        command, cwd=folder, input=said, capture_output=True, text=True, timeout=6 * PATIENCE, env=os.environ
    )


def test_the_call_is_as_the_page_says(folder: Path) -> None:
    done = rejoinder(folder, "simulate", "my_agent.py", "my_call.yaml")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if " ok " in line]
    assert len(lines) == 7 and 7.0 < float(lines[-1].split()[0]) < 9.0, "eight virtual seconds"


@pytest.mark.weights
def test_the_chat_books_with_the_default_model(folder: Path) -> None:
    speech.need("ort:qwen2.5-coder-0.5b-instruct")
    done = rejoinder(
        folder, "chat", "my_agent.py", "--llm", "small", said="A table for four tomorrow at seven.\n"
    )
    assert done.returncode == 0, done.stderr
    assert 'book({"people": 4' in done.stdout and "-> Booked for 4 on" in done.stdout, done.stdout


def test_the_commands_of_the_page_are_these() -> None:
    """The others are run above; those that serve are run by the tests of ``serve --reload`` and ``talk``."""
    found = re.findall(r"^    \.venv/bin/rejoinder (.*)$", PAGE, re.MULTILINE)
    assert found == [
        "chat my_agent.py",
        "simulate my_agent.py my_call.yaml",
        "serve my_agent.py --reload",
        "talk my_agent.py",
    ]
