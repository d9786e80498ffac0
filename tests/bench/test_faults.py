"""``rejoinder bench faults``: a fault is caused, its victim fails, and the others are answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rejoinder.agent.bench.faults.causes import CAUSES, Fault
from rejoinder.agent.bench.faults.measuring import Caused, rounds_joined

pytestmark = pytest.mark.server


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Its own process, and no fork: it starts processes itself.
    command = [sys.executable, "-m", "rejoinder", "bench", "faults", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


VICTIMS = {
    "the voice raises": "failed: The voice failed.",
    "no memory for the voice": "failed: The voice failed.",
    "the language model raises": "failed: The language model failed.",
    "the recogniser raises": "failed: The speech recogniser failed.",
    "the voice hangs": "failed: The voice did not answer in time.",
    "the language model hangs": "failed: The language model did not answer in time.",
    "no descriptors": "waits, then completed",
}
"""What the victims get that notice a fault."""


@pytest.mark.parametrize("fault", CAUSES, ids=lambda fault: fault.name)
def test_fault_is_caused_beside_a_caller(tmp_path: Path, fault: Fault) -> None:
    if fault.missing:
        pytest.skip(f"{fault.missing} is not installed")
    flags = ("--callers=1", "--turns=1", "--rounds=1", "--json=x.json", f"--only={fault.name}")
    said = bench(tmp_path, *flags)
    assert said.returncode == 0, said.stdout + said.stderr
    (found,) = json.loads((tmp_path / "x.json").read_text())["faults"]
    assert found["victim"] == VICTIMS.get(fault.name, "completed")
    assert len(found["before"]) == len(found["during"]) == 1 and found["lost"] == 0
    assert (found["logged"], found["moved"]) == (None, None) if not fault.logged else found["moved"] >= 1.0


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
        (
            Caused("a", "failed", [100.0], [100.0], 0, False, 1.0),
            "it is not in the log, or not in the metrics",
        ),
        (
            Caused("a", "failed", [100.0], [100.0], 0, True, 0.0),
            "it is not in the log, or not in the metrics",
        ),
        (Caused("a", "completed", [100.0], [100.0], 0, None, None), ""),
    ],
)
def test_what_is_wrong_is_named(caused: Caused, wrong: str) -> None:
    assert caused.wrong == wrong
