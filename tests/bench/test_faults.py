"""``rejoinder bench faults``: a fault is caused, its victim fails, and the others are answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server


def test_fault_is_caused_beside_a_caller(tmp_path: Path) -> None:
    arguments = ("bench", "faults", "--callers=1", "--turns=2", "--only=language", "--json=x.json")
    # Its own process, and no fork: it starts processes itself.
    command = [sys.executable, "-m", "rejoinder", *arguments]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    (found,) = json.loads((tmp_path / "x.json").read_text())["faults"]
    assert found["fault"] == "language model panics"
    assert found["victim"] == "failed: The language model failed."
    assert len(found["before"]) == len(found["during"]) == 2 and found["lost"] == 0
    assert found["moved"].startswith("engine_failed_steps_total{faulty-llm")
    assert "failed: faulty-llm: " in found["logged"]
