"""The agent that a command names is found, or the message says what to write instead."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.app.functions.mistakes import BrokenAgent
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.cli.app import app
from rejoinder.agent.config import ConfigError

ONE = "from rejoinder.agent.app.agent import Agent\nbookings = Agent('You take bookings.')\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty current folder with a file that has one agent, and one that has two."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "one_agent.py").write_text(ONE)
    (tmp_path / "two_agents.py").write_text(ONE + "other = Agent('Other.')\nnumber = 3\n")
    (tmp_path / "no_agent.py").write_text("number = 3\n")
    yield tmp_path
    logging.getLogger("rejoinder").setLevel(logging.NOTSET)  # commands set it, and later tests read the log


@pytest.mark.parametrize(
    "named",
    ["one_agent.py", "one_agent.py:bookings", "one_agent:bookings", "one_agent", "two_agents:bookings"],
)
def test_agent_is_found(named: str) -> None:
    assert load_agent(named).instructions == "You take bookings."


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("missing.py", "there is no file missing.py"),
        ("missing", "there is no module missing; a file needs its ending: missing.py"),
        ("no_agent.py", "no_agent.py has no agent"),
        ("two_agents.py", "choose two_agents.py:bookings or two_agents.py:other"),
        ("two_agents.py:third", "two_agents.py has no name third"),
        ("two_agents.py:number", "two_agents.py:number is not an Agent: it is of type int"),
    ],
)
def test_missing_agent_is_an_error_that_says_what_to_write(named: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_agent(named)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "import os\nimport not_installed_anywhere\n",
            "line 2: ModuleNotFoundError: .*'not_installed",
        ),
        ("def broken():\n    return {}['a']\n\nbroken()\n", "line 2: KeyError: 'a'"),
        ("agent = Agent(\n", r"line 1: SyntaxError: '\(' was never closed"),
        ("import json\n\njson.loads('{')\n", "line 3: JSONDecodeError: Expecting property name"),
        ("raise SystemExit('no key')\n", "line 1: SystemExit: no key"),
        (
            "from rejoinder import Agent\nAgent(greeting=3)\n",
            "line 2: TypeError: greeting needs text",
        ),
    ],
)
def test_exception_of_the_integrators_own_code_is_named_with_its_line(
    code: str, says: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "broken_agent.py").write_text(code)
    for named in ("broken_agent.py", "broken_agent"):
        with (
            caplog.at_level("DEBUG"),
            pytest.raises(BrokenAgent, match=f"^{named} cannot be loaded: brok.*{says}"),
        ):
            sys.modules.pop("broken_agent", None)
            load_agent(named)
    assert "Traceback" in caplog.text


def test_command_shows_one_line_for_a_broken_file(folder: Path) -> None:
    (folder / "broken_agent.py").write_text("import os\nos.environ['NO_SUCH_KEY']\n")
    for command in (["serve", "broken_agent.py"], ["talk", "broken_agent.py"]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2
        assert result.output.splitlines() == [
            "error: broken_agent.py cannot be loaded: broken_agent.py, line 2: KeyError: 'NO_SUCH_KEY'"
        ]
