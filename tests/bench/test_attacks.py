"""``rejoinder bench attacks`` with few attackers: each attack reaches the server, and no turn is lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.serving import PATIENCE, serving

from rejoinder.agent.bench.attacks.attackers import ATTACKER, ATTACKS, HEAD
from rejoinder.agent.bench.attacks.measuring import Attacked, environment, pooled

pytestmark = pytest.mark.server


def test_callers_are_answered_during_each_attack(tmp_path: Path) -> None:
    arguments = (
        "bench",
        "attacks",
        "--callers=2",
        "--turns=1",
        "--rounds=1",
        "--share=0.02",
        "--json=x.json",
    )
    # Its own process, and no fork: it starts processes itself.
    command = [sys.executable, "-m", "rejoinder", *arguments]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    found = {one["attack"]: one for one in json.loads((tmp_path / "x.json").read_text())["attacks"]}
    assert found.keys() == ATTACKS.keys()
    for one in found.values():
        assert one["lost"] == one["lost_without"] == 0 and one["turns"] == 2
        assert 0.0 < one["p50_without_ms"] and 0.0 < one["p95_with_ms"]
    assert found["flood"]["connections"] > found["silent"]["connections"] >= 10


def test_rounds_of_an_attack_are_joined() -> None:
    found = [
        Attacked("", 0, [1.0], 0, [0.1]),
        Attacked("flood", 5, [2.0], 1),
        Attacked("", 0, [3.0], 0),
        Attacked("silent", 7, [9.0], 0),
        Attacked("", 0, [4.0], 2),
        Attacked("flood", 6, [5.0], 0, [0.2]),
    ]
    assert pooled(found) == [
        (Attacked("", 0, [1.0, 4.0], 2, [0.1]), Attacked("flood", 11, [2.0, 5.0], 1, [0.2])),
        (Attacked("", 0, [3.0], 0, []), Attacked("silent", 7, [9.0], 0, [])),
    ]


def test_flood_has_an_address_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attackers' handshakes are complete: the limit of their address refuses them, and nothing else."""
    for name, value in environment(1).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REJOINDER_ADDRESS_CALLS_PER_MIN", "1")
    with serving(tmp_path) as server:
        answers = []
        for _ in range(2):
            address = ("127.0.0.1", server.port)
            with socket.create_connection(address, PATIENCE, source_address=(ATTACKER, 0)) as attacker:
                attacker.sendall(HEAD.encode())
                answers.append(attacker.recv(4096).split(b"\r\n")[0])
        assert answers == [b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 429 Too Many Requests"]
        server.sessions()  # by then it is written
        assert f"({ATTACKER})" in server.log.read_text()
