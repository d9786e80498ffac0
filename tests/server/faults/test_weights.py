"""Weights that are truncated and deleted under a running server, and before the next start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support import speech
from support.servers.faults import ask
from support.serving import Talk, run_command, serving

from rejoinder.models.registry import weights
from rejoinder.models.weights.fetch import locate

pytestmark = [pytest.mark.server, pytest.mark.weights]

REAL = {"vad": "silero", "stt": "whisper:tiny.en", "turn": "smart-turn", "tts": "piper:en_US-joe-medium"}


def test_running_server_needs_no_weights_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is mapped into memory: reading a mapped file that was truncated would kill the process."""
    speech.need(*REAL.values())
    cache = tmp_path / "cache" / "weights"
    for spec in REAL.values():
        folder = locate(str(weights(spec)))
        shutil.copytree(folder, cache / folder.name)
    monkeypatch.setenv("REJOINDER_CACHE", str(cache.parent))
    with serving(tmp_path, **REAL) as server, Talk(server) as call:
        assert ask(call, "Hello.")["status"] == "completed"
        assert str(cache) not in Path(f"/proc/{server.process.pid}/maps").read_text()
        files = [file for file in cache.rglob("*") if file.is_file()]
        for file in files:
            os.truncate(file, file.stat().st_size // 2)
        assert ask(call, "What about tomorrow?")["status"] == "completed"
        said = run_command("serve", "--port", "0", "--llm", "scripted:llm", folder=tmp_path)
        assert said.returncode != 0
        line = " ".join((said.stdout + said.stderr).split())
        assert "rejoinder models fetch silero-vad" in line, line
        for file in files:
            file.unlink()
        with Talk(server) as other:
            assert ask(other, "And the day after?")["status"] == "completed"
