"""The files: encryption, a process that dies, a full disk, and what is deleted when."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from support.callers.recorded import KEY, blocks, recording

from rejoinder.agent.recording.audio_file import AudioFile
from rejoinder.agent.recording.folder import CallRecording, Folder, new_id
from rejoinder.agent.recording.running import TOO_SLOW, RunningRecording
from rejoinder.agent.recording.sealing import (
    CHUNK_BYTES,
    HEADER_BYTES,
    TAG_BYTES,
    SealedReader,
    SealedWriter,
    SealError,
    key_id,
    read_keys,
)
from rejoinder.agent.recording.writer import RecordingWriter
from rejoinder.agent.settings.recording import Form
from rejoinder.pipeline import RATE

OTHER = bytes(32)


class Disk(io.BytesIO):
    """A file whose bytes stay readable when it is closed."""

    def close(self) -> None:
        self.left = self.getvalue()


def sealed(*writes: bytes, over: bytes = b"") -> bytes:
    disk = Disk()
    with SealedWriter(disk, KEY) as writer:
        for data in writes:
            writer.write(data)
        if over:
            writer.seek(4)
            writer.write(over)
    return disk.left


def opened(data: bytes, *keys: bytes, cut_off: bool = False) -> bytes:
    with io.BufferedReader(SealedReader(io.BytesIO(data), keys or [KEY], cut_off)) as reader:
        return reader.read()


@given(
    st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=5),
    st.integers(0, 40),
    st.integers(0, 4 * CHUNK_BYTES),
    st.integers(1, CHUNK_BYTES),
)
def test_what_was_written_is_read_from_any_place(sizes: list[int], over: int, place: int, size: int) -> None:
    parts = [os.urandom(each) for each in sizes]
    plain, changed = bytearray(b"".join(parts)), os.urandom(over)
    if len(plain) < 4:
        changed = b""
    data = sealed(*parts, over=changed)
    if changed:
        plain[4 : 4 + over] = changed
    assert opened(data) == plain
    reader = io.BufferedReader(SealedReader(io.BytesIO(data), [OTHER, KEY]))
    reader.seek(min(place, len(plain)))
    assert reader.read(size) == plain[min(place, len(plain)) :][:size]


PLAIN = bytes(range(256)) * 200  # more than three chunks


@pytest.mark.parametrize("at", [0, 9, 20, HEADER_BYTES, HEADER_BYTES + 20_000, -1])
def test_a_changed_byte_is_refused(at: int) -> None:
    data = bytearray(sealed(PLAIN))
    data[at] ^= 1
    with pytest.raises(SealError):
        opened(bytes(data))


@pytest.mark.parametrize("cut", [1, 100, 5_000, 2 * (CHUNK_BYTES + TAG_BYTES)])
def test_a_missing_end_is_found(cut: int) -> None:
    data = sealed(PLAIN)
    with pytest.raises(SealError, match="its end is missing"):
        opened(data[:-cut])
    exact = HEADER_BYTES + 2 * (CHUNK_BYTES + TAG_BYTES)  # where a chunk ends
    with pytest.raises(SealError, match="its end is missing"):
        opened(data[:exact])
    assert opened(data[:exact], cut_off=True) == PLAIN[: 2 * CHUNK_BYTES], "unless it is to be read"


def test_chunks_cannot_change_places() -> None:
    data, size = sealed(PLAIN), CHUNK_BYTES + TAG_BYTES
    first, second = (data[HEADER_BYTES + place * size :][:size] for place in range(2))
    with pytest.raises(SealError, match="changed at byte 0"):
        opened(data[:HEADER_BYTES] + second + first + data[HEADER_BYTES + 2 * size :])


def test_keys_are_named_and_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{OTHER.hex()}\n{KEY.hex()}\n")
    assert opened(sealed(PLAIN), *read_keys(path)) == PLAIN
    with pytest.raises(SealError, match=key_id(KEY).hex()):
        opened(sealed(PLAIN), OTHER)
    for wrong in ("", "abc", "00" * 31):
        path.write_text(wrong)
        with pytest.raises(SealError):
            read_keys(path)
    with pytest.raises(SealError):
        read_keys(tmp_path / "none")
    with pytest.raises(SealError, match="no encrypted recording"):
        opened(b"fLaC" + PLAIN)


# --- the audio file -----------------------------------------------------------------------------------------


def frames(folder: Folder, recording: CallRecording) -> int:
    """Return the samples that can be read of a recording, as it would be exported."""
    whole = b"".join(folder.decrypted(recording, [KEY]))
    audio, _ = soundfile.read(io.BytesIO(whole), dtype="int16")
    return len(audio)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("form", ["flac", "opus"])
def test_file_of_a_process_that_died_can_be_read(tmp_path: Path, form: Form, key: bytes | None) -> None:
    about = recording(form, key)
    file = AudioFile(tmp_path / about.file, form, key, about.id)
    for block in blocks(20):
        file.write(block)
    died = tmp_path / "died"
    died.mkdir()
    (died / about.file).write_bytes((tmp_path / about.file).read_bytes())
    file.give_up()
    assert frames(Folder(died), about) > 17 * RATE


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.callers.recorded import KEY, blocks, recording
from rejoinder.agent.recording.folder import Folder
from rejoinder.agent.recording.running import RunningRecording
from rejoinder.agent.recording.writer import RecordingWriter

def full(path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, resource.RLIM_INFINITY))

for form in ("flac", "opus"):
    for key in (None, KEY):
        folder = Folder(Path(sys.argv[1], "closed", form, str(bool(key))))
        writer, failed = RecordingWriter(), []
        folder.create()
        about = recording(form, key)
        args = about, 0.0, False, folder, key, writer, failed.append
        running = RunningRecording(*args, lambda: print("complete"))
        for block in blocks(11):
            running._give(block)
        running._submit(lambda: full(folder.path / about.file))
        running._submit(lambda: running._close("the call has ended", []))
        writer.begin()
        assert writer.end(30.0)
        print(*failed, sep=",")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for form in ("flac", "opus"):
    for key in (None, KEY):
        folder, writer, failed = Folder(Path(sys.argv[1], form, str(bool(key)))), RecordingWriter(), []
        folder.create()
        args = recording(form, key), 0.0, False, folder, key, writer, failed.append
        running = RunningRecording(*args, lambda: print("complete"))
        for block in blocks(30):
            running._give(block)
        running._submit(lambda: running._close("the call has ended", []))
        writer.begin()
        assert writer.end(30.0)
        print(*failed, sep=",")
"""


def test_a_full_disk_ends_the_recording_and_leaves_what_it_has(tmp_path: Path) -> None:
    here = str(Path(__file__).parents[1])
    ran = subprocess.run([sys.executable, "-c", FULL, str(tmp_path), here], capture_output=True, text=True)
    assert ran.stdout == "File too large\n" * 8, ran.stderr
    assert ran.stderr == ""
    for form in ("flac", "opus"):
        for sealed in ("False", "True"):
            (known,) = Folder(tmp_path / "closed" / form / sealed).all()
            assert known.ended == "File too large" and known.seconds == 12.0
            assert frames(Folder(tmp_path / "closed" / form / sealed), known) > 1.5 * RATE
            folder = Folder(tmp_path / form / sealed)
            (known,) = folder.all()
            assert known.ended == "File too large" and known.seconds > 2.0
            assert frames(folder, known) > 1.5 * RATE


def test_recording_whose_index_cannot_be_written_has_failed(tmp_path: Path) -> None:
    writer, told = RecordingWriter(), list[str]()
    about = recording("flac", None)
    running = RunningRecording(
        about, 0.0, False, Folder(tmp_path), None, writer, told.append, lambda: told.append("complete")
    )
    running._submit((tmp_path / f"{about.id}.new").mkdir)  # in the place of the file that becomes the index
    running.end(2.0, "the call has ended", [])
    writer.begin()
    assert writer.end(30.0)
    assert told == ["Is a directory"]


def test_a_disk_that_is_too_slow_ends_the_recording(tmp_path: Path) -> None:
    writer, failed = RecordingWriter(), list[str]()
    about = recording("flac", None)
    running = RunningRecording(about, 0.0, False, Folder(tmp_path), None, writer, failed.append, lambda: None)
    for block in blocks(60):  # the thread does not run yet
        running._give(block)
    assert failed == [TOO_SLOW], "it is reported once, and at once"
    writer.begin()
    assert writer.end(30.0)
    (known,) = Folder(tmp_path).all()
    assert known.ended == TOO_SLOW and known.seconds == 32.0


# --- what is kept -------------------------------------------------------------------------------------------


def keep(folder: Folder, began: float, caller: str, size: int = 1000, **known: object) -> CallRecording:
    given = {"began": began, "caller": caller, "call": f"call-{began:g}", "ended": "stopped", **known}
    about = recording("flac", None, **given).model_copy(update={"id": new_id(began)})
    folder.create()
    folder.save(about)
    (folder.path / about.file).write_bytes(bytes(size))
    return about


def test_recordings_of_a_caller_are_found_and_deleted(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for began, caller in ((3, "+491"), (1, "+491"), (2, "+492")):
        keep(folder, began, caller)
    assert [one.began for one in folder.all()] == [1.0, 2.0, 3.0]
    assert [one.began for one in folder.all(call="call-2")] == [2.0]
    folder.delete(one.id for one in folder.all(caller="+491"))
    assert [one.caller for one in folder.all()] == ["+492"]
    assert len(list(tmp_path.iterdir())) == 2, "its audio and its index"
    (tmp_path / "broken.json").write_text("{")
    assert len(folder.all()) == 1


def test_old_recordings_expire_and_then_the_oldest(tmp_path: Path) -> None:
    folder, day = Folder(tmp_path), 86_400
    now = 20_000.0 * day
    ids = {age: keep(folder, now - age * day, "", size=1000).id for age in (2, 5, 9)}
    assert folder.expired(now, 7.0, 0) == [ids[9]]
    assert folder.expired(now, 7.0, 0, [ids[9]]) == [], "it runs"
    assert folder.expired(now, 0.0, 3000) == [ids[9]]
    assert folder.expired(now, 0.0, 1900) == [ids[5], ids[9]]
    assert folder.expired(now, 0.0, 0) == []


def test_what_a_dead_process_leaves_is_deleted(tmp_path: Path) -> None:
    folder, now = Folder(tmp_path), 20_000.0 * 86_400
    unheard = keep(folder, now - 700, "", pending=True, ended="")
    without_index = keep(folder, now - 900, "")
    (tmp_path / f"{without_index.id}.json").unlink()
    cut_off = keep(folder, now - 800, "", ended="")
    young = keep(folder, now - 60, "", pending=True, ended="")
    assert folder.expired(now, 0.0, 0) == [unheard.id, without_index.id]
    assert [one.id for one in folder.all()] == [cut_off.id], "without the announcement it cannot be read"
    assert folder.get(young.id) is None


def test_recordings_of_other_servers_that_run_are_kept(tmp_path: Path) -> None:
    folder, now = Folder(tmp_path), 20_000.0 * 86_400
    runs = keep(folder, now - 7200, "", ended="", size=5000)
    over = keep(folder, now - 9000, "")
    assert folder.expired(now, 0.0, 4000) == [over.id]
    assert runs.id in {one.id for one in folder.all()}


def test_folder_is_private(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "recordings")
    folder.create()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000, "the limit was another process's"
