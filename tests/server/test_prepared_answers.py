"""``rejoinder cache fill``: a server plays what was cached before anybody asked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support.serving import PATIENCE, SCRIPTED, Talk, run_command, serving

from rejoinder.agent.server.keys import hashed

QUESTIONS = """
"What is the weather?" = "Sunny, as always."
"When do you open?" = ""
"""
AGENT = """
from rejoinder import Agent

agent = Agent("You sell bread.", name="baker")
"""


def fill(folder: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    models = [word for role in ("stt", "llm", "tts") for word in (f"--{role}", SCRIPTED[role])]
    file = folder / "questions.toml"
    environment = {"REJOINDER_VAD": "scripted:vad", "REJOINDER_TURN": "", **environment}
    return run_command("cache", "fill", str(file), *models, *arguments, folder=folder, **environment)


def answered(server: object, traces: Path, key: str) -> str:
    """Call until the answer is from the cache: a lookup on a busy machine may come too late."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with Talk(server, additional_headers={"Authorization": f"Bearer {key}"}) as talk:  # type: ignore[arg-type]
            response = talk.turn()
        server.wait_idle()  # type: ignore[attr-defined]
        if "cache_exact" in json.loads(traces.read_text().splitlines()[-1])["counts"]:
            return str(response["output"][0]["content"][0]["transcript"])
    raise AssertionError("the answer was not found")


@pytest.mark.parametrize("agent", [[], ["--agent", "baker.py"]], ids=["settings", "agent"])
def test_each_key_hears_the_answers_of_the_file(
    agent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = tmp_path / "traces.jsonl"
    keys = f"{hashed('rj_one')} {hashed('rj_two')}:3:10"
    monkeypatch.setenv("REJOINDER_ANSWER_CACHE", f"sqlite:{tmp_path / 'answers.db'}")
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(traces))
    monkeypatch.setenv("REJOINDER_INSTRUCTIONS", "Be brief.")
    monkeypatch.setenv("REJOINDER_API_KEYS", keys)
    (tmp_path / "questions.toml").write_text(QUESTIONS)
    (tmp_path / "baker.py").write_text(AGENT)
    done = fill(tmp_path, *agent)
    assert (done.returncode, done.stdout) == (0, "2 questions: 2 stored\n"), done.stderr
    assert run_command("cache", "stats", folder=tmp_path).stdout.startswith("4 answers, ")
    again = fill(tmp_path, *agent)
    assert again.stdout == "2 questions: 1 stored, 1 was there\n", "given words replace what is there"
    served = {"agent": agent[1]} if agent else {}
    with serving(tmp_path, **served) as server:
        for key in ("rj_one", "rj_two"):
            assert answered(server, traces, key) == "Sunny, as always."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot read questions.toml: No such file or directory"),
        ('"When do you open?" = 9', "'When do you open?' has no answer in quotes"),
        ('"" = "Yes."', "'' has no answer in quotes"),
        ("When do you open?", 'write "QUESTION" = "ANSWER" in each line'),
        ('"a" = "b"\n"a" = "c"', 'write "QUESTION" = "ANSWER" in each line'),
    ],
)
def test_a_file_that_cannot_be_used_is_named(text: str | None, reason: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "questions.toml").write_text(text)
    done = run_command(
        "cache", "fill", "questions.toml", folder=tmp_path, REJOINDER_ANSWER_CACHE="sqlite:answers.db"
    )
    assert done.returncode == 1 and reason in " ".join(done.stderr.split())


def test_instructions_with_the_time_are_refused(tmp_path: Path) -> None:
    (tmp_path / "questions.toml").write_text(QUESTIONS)
    done = fill(tmp_path, REJOINDER_ANSWER_CACHE="sqlite:answers.db")
    assert done.returncode == 1 and "the instructions have {time}" in " ".join(done.stderr.split())


def test_an_agent_whose_answers_are_not_cached_is_refused(tmp_path: Path) -> None:
    (tmp_path / "questions.toml").write_text(QUESTIONS)
    guarded = "@agent.guard\nasync def check(call, text):\n    return None\n"
    (tmp_path / "baker.py").write_text(AGENT + guarded)
    done = fill(tmp_path, "--agent", "baker.py", REJOINDER_ANSWER_CACHE="sqlite:answers.db")
    assert done.returncode == 1 and "no answer of this agent is cached" in " ".join(done.stderr.split())
