"""Calls to a server with a cache of answers."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.serving import PATIENCE, Talk, run_command, serving

from rejoinder.agent.server.keys import hashed


def entries(file: Path) -> int:
    with closing(sqlite3.connect(file)) as database:
        return int(database.execute("SELECT count(*) FROM answers").fetchone()[0])


def matches(traces: Path) -> list[str]:
    """Return what the cache had for each turn in a trace file."""
    counts = [json.loads(line)["counts"] for line in traces.read_text().splitlines()]
    names = ("cache_miss", "cache_exact", "cache_similar")
    return [name for each in counts for name in each if name in names]


def test_a_key_hits_its_own_answers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, traces = tmp_path / "answers.db", tmp_path / "traces.jsonl"
    monkeypatch.setenv("REJOINDER_ANSWER_CACHE", f"sqlite:{file}")
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(traces))
    monkeypatch.setenv(
        "REJOINDER_INSTRUCTIONS", "Be brief."
    )  # with the time in it, a key is that of a minute
    with serving(
        tmp_path, api_keys=f"{hashed('rj_one')} {hashed('rj_two')}", llm="scripted:llm|Yes."
    ) as server:
        for key, kept in (("rj_one", 1), ("rj_two", 2)):
            with Talk(server, additional_headers={"Authorization": f"Bearer {key}"}) as talk:
                assert talk.turn()["status"] == "completed"
                deadline = time.monotonic() + PATIENCE
                while entries(file) < kept:
                    assert time.monotonic() < deadline, "the answer was not kept"
                    time.sleep(0.05)
            server.wait_idle()
        assert matches(traces) == ["cache_miss", "cache_miss"]
        deadline = time.monotonic() + PATIENCE
        while matches(traces)[-1] == "cache_miss":  # on a busy machine a lookup may come too late
            assert time.monotonic() < deadline, "the answer was not found"
            with Talk(server, additional_headers={"Authorization": "Bearer rj_one"}) as talk:
                assert talk.turn()["status"] == "completed"
            server.wait_idle()
    assert matches(traces)[-1] == "cache_exact" and entries(file) == 2
    shown = run_command("cache", "stats", folder=tmp_path)
    assert shown.stdout.startswith("2 answers, "), shown.stderr
    assert run_command("cache", "purge", folder=tmp_path).stdout == "deleted 2 answers\n"
    assert entries(file) == 0


@pytest.mark.parametrize("instructions", ["Be brief.", "Be brief. It is {time}."])
def test_instructions_with_the_time_leave_a_warning(
    instructions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_ANSWER_CACHE", f"sqlite:{tmp_path / 'answers.db'}")
    monkeypatch.setenv("REJOINDER_INSTRUCTIONS", instructions)
    with serving(tmp_path, clean=False) as server:
        assert ("found again within the same minute only" in server.log.read_text()) == (
            "{time}" in instructions
        )


@pytest.mark.parametrize("url", ["answers.db", "sqlite:/proc/none/answers.db", "redis://127.0.0.1:x"])
def test_a_cache_that_cannot_be_opened_is_named_at_the_start(url: str, tmp_path: Path) -> None:
    said = run_command(
        "serve", "--port", "0", "--llm", "scripted:llm", folder=tmp_path, REJOINDER_ANSWER_CACHE=url
    )
    assert said.returncode != 0
    assert "answer_cache: cache" in " ".join(said.stderr.split())


def test_without_a_cache_the_command_says_which_setting_to_set(tmp_path: Path) -> None:
    said = run_command("cache", "stats", folder=tmp_path)
    assert said.returncode == 1
    assert "answer_cache is not set" in said.stderr
