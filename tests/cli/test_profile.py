"""``rejoinder profile`` on a running server, and the table it makes of a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.ports import unused_port
from support.serving import Talk, run_command, serving

from rejoinder.agent.cli.profile import CannotProfile, process_of, threads_of


def test_a_running_server_is_sampled_without_stopping_it(tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    with serving(tmp_path) as server, Talk(server) as talk:
        assert process_of(server.port) == server.process.pid
        ran = run_command(
            "profile", "--port", str(server.port), "--seconds", "1", "--out", str(out), folder=tmp_path
        )
        if "allow ptrace" in ran.stderr:
            pytest.skip(f"this machine does not let a process read another one: {ran.stderr}")
        assert ran.returncode == 0, ran.stderr
        assert talk.turn()["status"] == "completed", "the server goes on"
    assert f"The whole profile is in {out}" in ran.stdout and "at work" in ran.stdout
    assert json.loads(out.read_text())["$schema"].endswith("file-format-schema.json")


def test_a_port_without_a_server_is_an_error(tmp_path: Path) -> None:
    port = unused_port()
    with pytest.raises(CannotProfile, match=f"no process listens on port {port}"):
        process_of(port)
    ran = run_command("profile", "--pid", "999999999", "--seconds", "1", folder=tmp_path)
    assert ran.returncode == 1 and "py-spy cannot read process 999999999" in ran.stderr


def test_threads_come_with_their_functions_and_the_busiest_first() -> None:
    frames = [{"name": name} for name in ("run", "decode", "listen")]
    profiles = [
        {"name": "MainThread", "samples": [[2], []], "weights": [0.01, 0.01]},
        {"name": "engine-whisper", "samples": [[0, 1], [0, 1], [0]], "weights": [0.01, 0.01, 0.01]},
    ]
    busiest, other = threads_of({"shared": {"frames": frames}, "profiles": profiles}, 0.1)
    assert (busiest.name, round(busiest.share, 2), busiest.functions) == (
        "engine-whisper",
        0.3,
        {"decode": 2, "run": 1},
    )
    assert (other.name, other.functions) == ("MainThread", {"listen": 1})
