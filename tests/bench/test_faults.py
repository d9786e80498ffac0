"""``rejoinder bench faults``: a fault is caused, its victim fails, and the others are answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rejoinder.agent.bench.faults.causes import CAUSES
from rejoinder.agent.bench.faults.measuring import Caused, rounds_joined

pytestmark = pytest.mark.server


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Its own process, and no fork: it starts processes itself.
    command = [sys.executable, "-m", "rejoinder", "bench", "faults", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)


def test_each_fault_is_caused_beside_a_caller(tmp_path: Path) -> None:
    said = bench(tmp_path, "--callers=1", "--turns=2", "--rounds=1", "--json=x.json")
    assert said.returncode == 0, said.stdout + said.stderr
    found = {one["fault"]: one for one in json.loads((tmp_path / "x.json").read_text())["faults"]}
    assert found.keys() == {one.name for one in CAUSES if not one.missing}
    for one in found.values():
        assert len(one["before"]) == len(one["during"]) == 2 and one["lost"] == 0
        assert one["fault"] == "a bad network" or (one["logged"] and one["moved"] >= 1.0)
    assert found["the voice raises"]["victim"] == "failed: The voice failed."
    assert found["the language model raises"]["victim"] == "failed: The language model failed."
    for name in found:
        if any(word in name for word in ("disk full", "locked", "clock", "a bad network")):
            assert found[name]["victim"] == "completed"
    assert found["no descriptors"]["victim"] == "waits, then completed"


def test_unknown_fault_is_refused(tmp_path: Path) -> None:
    said = bench(tmp_path, "--only=plague")
    assert said.returncode == 1 and said.stderr.splitlines() == ["error: no fault's name contains 'plague'"]


def test_rounds_of_a_fault_are_joined() -> None:
    rounds = [
        Caused("a", "failed", [1.0], [2.0], 0, True, 3.0),
        Caused("a", "failed", [4.0], [5.0], 1, False, 1.0),
        Caused("b", "completed", [6.0], [], 2, True, 1.0),
        Caused("c", "completed", [7.0], [8.0], 0, None, None),
    ]
    assert rounds_joined(rounds) == [
        Caused("a", "failed", [1.0, 4.0], [2.0, 5.0], 1, False, 1.0),
        *rounds[2:],
    ]


@pytest.mark.parametrize(
    ("caused", "wrong"),
    [
        (Caused("a", "failed", [100.0] * 40, [119.0] * 40, 0, True, 1.0), ""),
        (Caused("a", "failed", [100.0] * 40, [121.0] * 40, 0, True, 1.0), "others were answered later"),
        (Caused("a", "failed", [100.0] * 39, [121.0] * 39, 0, True, 1.0), ""),
        (Caused("a", "failed", [100.0] * 40, [100.0] * 38, 2, True, 1.0), "others lost 2 turns"),
        (Caused("a", "failed", [100.0], [100.0], 0, False, 1.0), "it is not in the log and the metrics"),
        (Caused("a", "failed", [100.0], [100.0], 0, True, 0.0), "it is not in the log and the metrics"),
        (Caused("a", "completed", [100.0], [100.0], 0, None, None), ""),
    ],
)
def test_what_is_wrong_is_named(caused: Caused, wrong: str) -> None:
    assert caused.wrong == wrong
