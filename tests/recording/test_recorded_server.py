"""A real server that records its calls: the files of a call over a socket, and their player's requests."""

from __future__ import annotations

import io
import json
import resource
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile
from support.callers.recorded import loud, only, place, talk
from support.servers.faults import metric
from support.serving import PATIENCE, Server, Talk, serving

from rejoinder.agent.recording.folder import CallRecording, Folder

pytestmark = pytest.mark.server
RATE = 24_000


def read(server: Server, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(f"{server.http}/{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def listed(server: Server, recording: CallRecording) -> dict[str, Any]:
    status, _, body = read(server, f"calls/api/recordings?call={recording.call}")
    assert status == 200
    (found,) = json.loads(body)["recordings"]
    assert isinstance(found, dict)
    return found


def test_recording_has_both_sides_of_a_call_over_a_socket(tmp_path: Path) -> None:
    """The clocks of both sides differ by the network alone; on a busy machine one call of many is enough."""
    distances = []
    folder = tmp_path / "recordings"
    with serving(tmp_path, recordings=str(folder), recording="always") as server:
        for _ in range(10):
            with Talk(server) as call:
                spoken, answered, asked = talk(call, 6.0)
            recording = only(folder)
            audio, _ = soundfile.read(folder / recording.file, dtype="float32")
            begin, _ = loud(audio[:, 1])[0]
            distances.append(begin - place(audio[:, 0], asked) - (answered - spoken))
            if abs(distances[-1]) < 0.02:
                break
            Folder(folder).delete([recording.id])
        assert abs(distances[-1]) < 0.02, distances
        known = listed(server, recording)
        assert "caller" not in known and [span["side"] for span in known["spans"]] == ["caller", "agent"]
        whole = (folder / recording.file).read_bytes()
        status, headers, body = read(server, known["url"], Range="bytes=100-199")
        assert (status, body) == (206, whole[100:200])
        assert headers["content-type"] == "audio/flac"
        assert read(server, known["url"])[2] == whole
        assert read(server, "calls/api/recordings/20200101T000000Z-000000000000")[0] == 404
        assert read(server, "metrics")[2].count(b'rejoinder_recordings_total{outcome="complete"}') == 1


def test_encrypted_recording_is_decrypted_while_it_is_played(tmp_path: Path) -> None:
    folder, keys = tmp_path / "recordings", tmp_path / "keys"
    keys.write_text("ab" * 32)
    given = {"recordings": str(folder), "recording": "always", "recording_key_file": str(keys)}
    with serving(tmp_path, **given) as server:
        with Talk(server) as call:
            talk(call, 3.0)
        recording = only(folder)
        known = listed(server, recording)
        assert b"fLaC" not in (folder / recording.file).read_bytes()
        status, headers, whole = read(server, known["url"])
        assert status == 200 and int(headers["content-length"]) == len(whole)
        audio, rate = soundfile.read(io.BytesIO(whole))
        assert rate == 16_000 and len(audio) / rate == pytest.approx(recording.seconds, abs=0.001)
        drawn = json.loads(read(server, f"calls/api/recordings/{recording.id}/waveform")[2])
        for side, channel in (("caller", 0), ("agent", 1)):
            loudest = np.abs(audio[:, channel]).max()
            assert max(drawn[side]) == pytest.approx(100.0 * loudest, abs=1.0) and len(drawn[side]) > 500
        for wanted, part in (("5-9", whole[5:10]), ("-7", whole[-7:]), ("20000-", whole[20000:])):
            status, headers, body = read(server, known["url"], Range=f"bytes={wanted}")
            assert (status, body) == (206, part)
            assert headers["content-range"].endswith(f"/{len(whole)}")
        assert read(server, known["url"], Range=f"bytes={len(whole)}-")[0] == 416


def test_sound_needs_the_key_or_a_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CALLS_KEY", "00" * 32)
    folder = tmp_path / "recordings"
    with serving(tmp_path, recordings=str(folder), recording="always") as server:
        with Talk(server) as call:
            talk(call, 1.0)
        path = f"calls/api/recordings/{only(folder).id}"
        assert read(server, path)[0] == 401
        assert read(server, f"calls/api/recordings?call={only(folder).call}")[0] == 401
        later = int(time.time()) + 100
        for ticket in ("", "00" * 32, "é"):
            assert read(server, f"{path}?until={later}&ticket={urllib.request.quote(ticket)}")[0] == 401


def test_full_disk_ends_the_recording_and_not_the_call(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    with serving(tmp_path, recordings=str(folder), recording="always", clean=False) as server:
        psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
        with Talk(server) as call:
            loud_ = np.random.default_rng(0).normal(0.0, 3000.0, RATE // 10).astype("<i2").tobytes()
            deadline = time.monotonic() + PATIENCE
            while not any(event["type"] == "rejoinder.recording.stopped" for event in call.seen):
                assert time.monotonic() < deadline
                call.append(loud_)
                time.sleep(0.05)
                while True:
                    try:
                        call.event(0.001)
                    except TimeoutError:
                        break
            stopped = next(event for event in call.seen if event["type"] == "rejoinder.recording.stopped")
            assert stopped["reason"] == "File too large"
            call.append(bytes(2 * 2 * RATE))
            call.send("response.create")
            call.until("response.done")
        recording = only(folder)
        assert recording.ended == "File too large" and recording.seconds > 0.5
        named = f"recording {recording.id} has ended, the call goes on: File too large"
        assert server.log.read_text().count(named) == 1
        assert metric(server, "recordings_total", outcome="failed") == 1
        assert metric(server, "recordings_total") == 1, "it is no complete one as well"
        audio, _ = soundfile.read(folder / recording.file)
        assert len(audio)


def test_folder_that_becomes_a_file_is_one_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "recordings"
    monkeypatch.setenv("REJOINDER_RECORDING_ANNOUNCEMENT", "This call is recorded.")
    with serving(tmp_path, clean=False, recordings=str(folder), recording="always") as server:
        folder.rmdir()
        folder.write_text("no folder")
        with Talk(server) as call:
            assert call.turn()["status"] == "completed"
        server.wait_idle()
    said = server.log.read_text()
    assert said.count("has ended, the call goes on: Not a directory") == 1 and "Traceback" not in said


@pytest.mark.parametrize("place", ["", "file"])
def test_settings_that_would_record_nothing_are_refused_at_the_start(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no folder")
    flags = {"recordings": str(tmp_path / place) if place else "", "recording": "always"}
    with serving(tmp_path, wait=False, clean=False, **flags) as server:
        assert server.process.wait(timeout=PATIENCE) == 1
    said = server.log.read_text()
    if place:
        assert f"recordings: {tmp_path / place}: this is a file, no folder\n" in said
    else:
        assert "recording is always, and recordings names no folder: nothing would be recorded\n" in said


def test_server_without_recordings_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as server, Talk(server) as call:
        call.send("rejoinder.recording.start")
        told = call.until("rejoinder.recording.stopped")
        assert told["recording_id"] == "" and "records no calls" in told["reason"]
