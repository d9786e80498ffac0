"""``rejoinder simulate``: a conversation with an agent, with a scripted and with a real model."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.paths import ROOT
from support.servers.chat import chat_server
from support.servers.clerk import AT, WANTED, Clerk
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.server.own_server import free_port

RESTAURANT = str(ROOT / "examples" / "restaurant.py")
BOOK = f'Let me see. @book {{"people": 4, "at": "{AT}", "name": "Anna"}}'
TOLD = "book done after"


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESTAURANT_DB", str(tmp_path / "db.sqlite"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "db.sqlite"


def run(*arguments: str, code: int = 0) -> list[str]:
    """Run the command; return its lines without the runs of spaces."""
    done = CliRunner().invoke(app, ["simulate", *arguments])
    assert done.exit_code == code, done.output + str(done.exception)
    return [" ".join(line.split()) for line in done.output.splitlines()]


def bookings(database: Path) -> list[tuple[str, int, str, str]]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute("SELECT at, people, name, phone FROM booking").fetchall()


def test_scripted_conversation_is_printed_with_its_tools(database: Path) -> None:
    words = (
        "--script",
        WANTED,
        "--script",
        "thank you",
        "--reply",
        BOOK,
        "--reply",
        "Done.",
        "--reply",
        "Bye.",
    )
    lines = run(RESTAURANT, *words, "--caller", "+3221234567")
    said = [line.partition(" ")[2] for line in lines if line[0].isdigit() and "ended:" not in line]
    assert said[:4] == [
        "agent Mario's, how can I help?",
        f"caller {WANTED}",
        "agent Let me see.",
        f"tool book(people=4, at='{AT}', name='Anna')",
    ]
    assert said[4].startswith(f"tool {TOLD}") and said[5:] == [
        "agent Done.",
        "caller thank you",
        "agent Bye.",
    ]
    assert "ended: the caller has left" in lines[-1]
    assert bookings(database) == [(AT, 4, "Anna", "+3221234567")]


def test_real_model_holds_the_conversation_in_its_own_time(database: Path) -> None:
    clerk, port = Clerk(), free_port()
    with chat_server(port, clerk.answer):
        lines = run(RESTAURANT, "--script", WANTED, "--llm", f"openai:http://127.0.0.1:{port}/v1#clerk")
    assert clerk.asked >= 1 and bookings(database) == [(AT, 4, "Anna", "")]
    assert any("Done: Booked for 4 on Tuesday, 24 November at 19:00." in line for line in lines)


def test_events_are_those_of_the_session() -> None:
    lines = run(RESTAURANT, "--events")
    assert any("partial: Hello" in line for line in lines) and any(
        "reply 2 completed" in line for line in lines
    )


def test_tool_that_fails_ends_with_1(tmp_path: Path) -> None:
    agent = tmp_path / "broken.py"
    agent.write_text(
        "from rejoinder import Agent\nagent = Agent()\n"
        '@agent.tool\ndef look() -> str:\n    """Look."""\n    raise OSError("no disk")\n'
    )
    lines = run(str(agent), "--reply", "@look", "--reply", "It did not work.", code=1)
    assert any("look failed after" in line and "OSError: no disk" in line for line in lines)
    assert lines[-1] == f"error: the tool look failed: {agent.name}, line 6: OSError: no disk"


HOOKS = """
from rejoinder import Agent

agent = Agent(greeting="Hello.")


def fail():
    raise KeyError("no such guest")


@agent.on_{hook}
{define} hook(*given):
    fail()
"""


@pytest.mark.parametrize("define", ["def", "async def"])
@pytest.mark.parametrize("hook", ["call", "turn", "end"])
def test_hook_that_fails_is_shown_and_ends_with_1(hook: str, define: str, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS.format(hook=hook, define=define))
    error = f"on_{hook} failed: hooks.py, line 8: KeyError: 'no such guest'"
    lines = run("hooks.py", "--reply", "Well.", code=1)
    assert lines[-1] == f"error: {error}" and not any("Traceback" in line for line in lines)
    assert any(line.endswith(f"error {error}") for line in lines) == (hook != "call")
    assert any("agent Well." in line for line in lines) == (hook != "call"), "the call goes on"


def test_log_level_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS.format(hook="turn", define="def"))
    command = [sys.executable, "-m", "rejoinder", "simulate", "hooks.py", "--log-level", "debug"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "Traceback" in done.stderr and "    fail()" in done.stderr


def test_filler_and_answer_have_lines_of_their_own_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import asyncio\nfrom rejoinder import Agent\nagent = Agent(greeting='Hello.')\n"
        "@agent.tool\nasync def look():\n    'Look.'\n    await asyncio.sleep(1.5)\n"
    )
    lines = run("slow.py", "--script", "is it free", "--reply", "@look", "--reply", "It is free.")
    times = [float(line.split()[0]) for line in lines[:-1]]
    assert times == sorted(times)
    assert [line.partition(" ")[2].partition(" after")[0] for line in lines[:-1]] == [
        "agent Hello.",
        "caller is it free",
        "tool look()",
        "agent (filler) One moment.",
        "tool look done",
        "agent It is free.",
    ]
    latency = int(lines[-1].rpartition(": ")[2])
    assert latency > 1_500, "of the answer, not of the filler"


def test_refused_call_is_no_mistake(tmp_path: Path) -> None:
    agent = tmp_path / "closed.py"
    agent.write_text(
        "from rejoinder import Agent\nagent = Agent()\n"
        '@agent.on_call\ndef refuse(call):\n    call.refuse("we are closed")\n'
    )
    assert run(str(agent)) == ["The agent refuses the call: we are closed"]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["nothing.py"], 2, "there is no file nothing.py"),
        (
            [RESTAURANT, "--llm", "openai:http://127.0.0.1:1/v1#m", "--reply", "Hi."],
            2,
            "--reply scripts the language",
        ),
        ([RESTAURANT, "--llm", "openai:http://127.0.0.1:1/v1#m"], 1, "127.0.0.1:1"),
        ([RESTAURANT, "--llm", "nothing:at all"], 1, "nothing"),
        ([RESTAURANT, "--reply", ""], 1, "the caller waited 30 s to hear an answer to its end"),
    ],
)
def test_mistakes_are_named(arguments: list[str], code: int, reason: str) -> None:
    assert any(line.startswith("error:") and reason in line for line in run(*arguments, code=code))
