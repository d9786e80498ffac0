"""onnxruntime reports nothing to its makers: it keeps what it would send in a file in the user's home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.patience import PATIENCE

OPENS = """
from rejoinder.models.onnx import session
import onnxruntime
try:
    onnxruntime.InferenceSession(b"", providers=["CPUExecutionProvider"])
except Exception as error:
    print(error)
"""
SAYS = "import os, rejoinder.models; print(os.environ['ORT_DISABLE_TELEMETRY'])"
SUPPRESSED_BY = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
"""Variables that would change where and whether it reports."""


def run(program: str, home: Path, **variables: str) -> str:
    """Run a program and return what it prints. home: its folder, and the user's."""
    usual = {name: value for name, value in os.environ.items() if name not in SUPPRESSED_BY}
    environment = {**usual, "HOME": str(home), **variables}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, cwd=home, check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


def test_onnxruntime_writes_no_report(tmp_path: Path) -> None:
    assert "No graph was found" in run(OPENS, tmp_path)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_operators_may_turn_reports_on(tmp_path: Path) -> None:
    assert run(SAYS, tmp_path, ORT_DISABLE_TELEMETRY="0") == "0\n"
