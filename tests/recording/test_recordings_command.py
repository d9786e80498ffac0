"""``rejoinder recordings``: what it lists, writes, deletes and refuses."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.callers.recorded import Client, Recorded
from typer.testing import CliRunner, Result

from rejoinder.agent.cli.app import app
from rejoinder.agent.recording.folder import CallRecording


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["recordings", *arguments])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    assert run("new-key", str(path)).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path


@pytest.fixture
def recording(tmp_path: Path, keys: Path) -> CallRecording:
    call = Recorded(tmp_path / "kept", Client([(1.0, 1.0)], 4.0), recording_key_file=str(keys))
    (recording,) = call.run([""], [])
    return recording


def test_list_names_the_caller_and_the_key(tmp_path: Path, recording: CallRecording) -> None:
    listed = run("list", "--folder", str(tmp_path / "kept")).output
    assert recording.id in listed and "+4930123456" in listed and recording.key in listed
    assert recording.id not in run("list", "--folder", str(tmp_path / "kept"), "--caller", "+4").output


def test_export_decrypts(
    tmp_path: Path, keys: Path, recording: CallRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_RECORDINGS", str(tmp_path / "kept"))
    out = tmp_path / "out.flac"
    refused = run("export", recording.id, str(out))
    assert refused.exit_code == 1 and recording.key in refused.output and not out.exists()
    monkeypatch.setenv("REJOINDER_RECORDING_KEY_FILE", str(keys))
    assert run("export", recording.id, str(out)).exit_code == 0
    audio, _ = soundfile.read(io.BytesIO(out.read_bytes()))
    assert np.abs(audio[:, 0]).max() > 0.1
    again = run("export", recording.id, str(out))
    assert again.exit_code == 1, "nothing is written over"
    assert again.output == f"error: {out} exists already: name a new file, or delete it first\n"
    path = tmp_path / "kept" / recording.file
    changed = bytearray(path.read_bytes())
    changed[-20] ^= 1
    path.write_bytes(changed)
    assert run("export", recording.id, str(tmp_path / "other")).exit_code == 1
    assert not (tmp_path / "other").exists()


def test_unknown_call_is_refused_with_the_place_of_its_id(tmp_path: Path, recording: CallRecording) -> None:
    folder = ("--folder", str(tmp_path / "kept"))
    assert recording.id in run("list", "--call", recording.call, *folder).output
    for command in ("list", "delete"):
        refused = run(command, "--call", "call_1f2e3d", *folder)
        assert refused.exit_code == 1
        assert refused.output.startswith("error: there is no recording of the call call_1f2e3d: take the id")


def test_a_key_file_that_holds_none_is_refused_in_words(
    tmp_path: Path, recording: CallRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_RECORDINGS", str(tmp_path / "kept"))
    wrong = tmp_path / "wrong"
    monkeypatch.setenv("REJOINDER_RECORDING_KEY_FILE", str(wrong))
    for text in (b"", b"secret\n", b"ab" * 31, b"\xff\xfe"):
        wrong.write_bytes(text)
        refused = run("export", recording.id, str(tmp_path / "out"))
        assert refused.output.startswith(f"error: {wrong} must hold keys of 64 hexadecimal digits")
    wrong.unlink()
    refused = run("export", recording.id, str(tmp_path / "out"))
    assert refused.output == f"error: the keys in {wrong} cannot be read: No such file or directory\n"


def test_what_was_said_stays_where_it_is_kept(
    tmp_path: Path, recording: CallRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CALLS_DB", str(tmp_path / "calls.db"))
    deleted = run("delete", recording.id, "--folder", str(tmp_path / "kept")).output
    assert deleted == "deleted 1 recordings; what was said in these calls stays in calls_db\n"


def test_delete_by_caller_by_call_and_by_id(tmp_path: Path, recording: CallRecording) -> None:
    folder = ("--folder", str(tmp_path / "kept"))
    assert run("delete", *folder).exit_code == 1, "not all of them by mistake"
    assert "no such recording" in run("delete", "x", *folder).output
    assert run("delete", "--caller", "+49999", *folder).output == "deleted 0 recordings\n"
    assert run("delete", "--caller", recording.caller, *folder).output == "deleted 1 recordings\n"
    assert list((tmp_path / "kept").iterdir()) == []
