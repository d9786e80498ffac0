"""onnxruntime reports nothing to its makers: it keeps what it would send in a file in the user's home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OPENS = """
from rejoinder.models.onnx import session
import onnxruntime
try:
    onnxruntime.InferenceSession(b"", providers=["CPUExecutionProvider"])
except Exception as error:
    print(error)
"""
SUPPRESSED_BY = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
"""Variables that would change where and whether it reports."""


@pytest.mark.parametrize("wanted", [{}, {"ORT_DISABLE_TELEMETRY": "0"}])
def test_nothing_is_reported_unless_somebody_wants_it(tmp_path: Path, wanted: dict[str, str]) -> None:
    usual = {name: value for name, value in os.environ.items() if name not in SUPPRESSED_BY}
    environment = {**usual, "HOME": str(tmp_path), **wanted}
    opened = subprocess.run(
        [sys.executable, "-c", OPENS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert "No graph was found" in opened.stdout, opened.stderr
    assert any(file.is_file() for file in tmp_path.rglob("*")) == bool(wanted)
