"""``rejoinder chat``: an agent in text."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.paths import ROOT
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app

BOOK = '@book {"people": 4, "at": "2026-11-27T19:00", "name": "Anna"}'


def chat(*flags: str, said: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["chat", *flags], input=said)
    return done.exit_code, done.output


def test_tools_run_and_are_shown() -> None:
    agent = str(ROOT / "examples" / "restaurant.py")
    code, shown = chat(
        agent, "--llm", f"scripted:llm|-|{BOOK}|It is booked.|Bye.", said="a table\n\nthanks\n"
    )
    assert code == 0
    greeting, call, result, booked, bye = [line for line in shown.splitlines() if line.strip(" you:")][:5]
    assert greeting == "agent: Mario's, how can I help?"
    assert "book({" in call and result.endswith("-> Booked for 4 on Friday, 27 November at 19:00.")
    assert booked.endswith("agent: It is booked.") and bye.endswith("agent: Bye.")


def test_without_an_agent_the_server_answers() -> None:
    code, shown = chat("--llm", "scripted:llm|Hello.", "--greeting", "Hi.", said="hello\n")
    assert code == 0 and "agent: Hi." in shown and "agent: Hello." in shown


@pytest.mark.parametrize("written", ["agent = 3\n", "from rejoinder import Agent\nAgent(7)\n"])
def test_a_file_without_an_agent_is_refused(written: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(written)
    code, shown = chat(str(file), said="")
    assert code == 2 and "mine.py" in shown
