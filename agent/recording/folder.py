"""The folder of recordings: for each one an audio file, and a JSON file that says whose call it is."""

from __future__ import annotations

import calendar
import io
import logging
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from pydantic import BaseModel, Field, ValidationError

from rejoinder.agent.recording.audio_file import SUFFIXES, flac_length
from rejoinder.agent.recording.disk import PRIVATE_FILE
from rejoinder.agent.settings.recording import Form
from rejoinder.pipeline import PipelineError

log = logging.getLogger(__name__)

INDEX = ".json"
"""The end of the name of the file that describes a recording."""
BEGAN_FORMAT = "%Y%m%dT%H%M%SZ"
"""The form of the time in an id."""
PRIVATE_FOLDER = 0o700
"""Permissions of a new folder."""
ID_PATTERN = r"^\d{8}T\d{6}Z-[0-9a-f]{12}$"
"""The form of an id: when the recording began, and random digits. It says nothing about the caller."""
DAY_SECONDS = 86_400.0
"""Seconds of a day."""
LOST_SECONDS = 600.0
"""Longest time until an announcement is heard, in seconds."""
LOST_DAYS = 7
"""Recordings of these last days are looked at: a process may have died before the announcement was heard."""
ENDS = (*SUFFIXES.values(), INDEX, ".new")
"""The ends of the names of a recording's files."""


class RecordedSpan(BaseModel):
    """One side speaks. begin, end: seconds in the recording. turn: number of the agent's reply, else 0."""

    side: str
    begin: float
    end: float
    turn: int = 0


class CallRecording(BaseModel):
    """What is known of one recording.

    id: also the begin of its files' names. call: the call's id. began: seconds since the epoch. seconds: its
    duration, 0.0 while it runs. key: id of the key that encrypts it, "" for none. announced: whether the
    caller heard the announcement first. pending: whether that is not known yet, so that it may not be kept.
    ended: why it ended, "" while it runs and after a process that died. spans: who speaks when.
    """

    id: str = Field(pattern=ID_PATTERN)
    call: str = ""
    caller: str = ""
    called: str = ""
    wire: str = ""
    began: float = 0.0
    seconds: float = 0.0
    form: Form = "flac"
    key: str = ""
    announced: bool = False
    pending: bool = False
    ended: str = ""
    spans: Sequence[RecordedSpan] = ()

    @property
    def file(self) -> str:
        """The name of the audio file."""
        return self.id + SUFFIXES[self.form]


def new_id(now: float) -> str:
    """Return the id of a recording that begins at ``now``, in seconds since the epoch."""
    return f"{time.strftime(BEGAN_FORMAT, time.gmtime(now))}-{token_hex(6)}"


def _began(id: str) -> float:
    """Return when a recording began, in seconds since the epoch, by its id. Raises ValueError."""
    return calendar.timegm(time.strptime(id.partition("-")[0], BEGAN_FORMAT))


class Folder:
    """The recordings in one folder. Its methods block, and raise OSError.

    path: of the folder; ``create`` makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make the folder, for this user only, unless it exists. Raises OSError if it cannot be written."""
        try:
            self.path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(20, "this is a file, no folder", str(self.path)) from None
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(13, "the folder cannot be written", str(self.path))

    def save(self, recording: CallRecording) -> None:
        """Write what is known of a recording."""
        path = self.path / (recording.id + INDEX)
        new = path.with_suffix(".new")
        with suppress(FileNotFoundError):
            new.unlink()
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "w") as file:
            file.write(recording.model_dump_json(exclude_defaults=True))
        new.replace(path)

    def all(self, caller: str = "", call: str = "") -> list[CallRecording]:
        """Return the recordings, the oldest first. caller, call: only those of this caller or call.

        Those whose announcement was not heard to its end are not among them.
        """
        found = [one for path in self.path.glob(f"*{INDEX}") if (one := self._read(path))]
        kept = [
            one for one in found if caller in ("", one.caller) and call in ("", one.call) and not one.pending
        ]
        return sorted(kept, key=lambda one: (one.began, one.id))

    def get(self, id: str) -> CallRecording | None:
        """Return the recording with this id, None if there is none."""
        found = self._read(self.path / (id + INDEX)) if re.fullmatch(ID_PATTERN, id) else None
        return found if found and not found.pending else None

    def _read(self, path: Path) -> CallRecording | None:
        try:
            return CallRecording.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("%s describes no recording: %s", path, error)
            return None

    def size(self, recording: CallRecording) -> int:
        """Return the bytes of the audio file, 0 if there is none."""
        try:
            return (self.path / recording.file).stat().st_size
        except FileNotFoundError:
            return 0

    def delete(self, ids: Iterable[str]) -> None:
        """Delete recordings. One that runs goes on without a file until its call ends."""
        for id in ids:
            for end in ENDS:  # the audio first: without its index nothing finds it
                with suppress(FileNotFoundError, NotADirectoryError):
                    (self.path / (id + end)).unlink()

    def expired(self, now: float, days: float, most_bytes: int, live: Collection[str] = ()) -> list[str]:
        """Return the ids of recordings that are kept no longer, or whose announcement was not heard.

        now: seconds since the epoch. days: how long they are kept; 0: for ever. most_bytes: of all audio
        files, the newest first; 0: no limit. live: ids of recordings that run here. Those that run in another
        server of this folder are not among them either: they have no end, and are less than a day old.
        """
        sizes: dict[str, int] = {}
        for path in self.path.iterdir():
            if re.fullmatch(ID_PATTERN, id := path.name.partition(".")[0]):
                with suppress(FileNotFoundError):
                    sizes[id] = sizes.get(id, 0) + path.stat().st_size
        over, total = list[str](), 0
        for id in sorted(sizes.keys() - set(live), reverse=True):  # the newest first
            total += sizes[id]
            age = now - _began(id)
            old = bool(days) and age > days * DAY_SECONDS
            may_be_lost = LOST_SECONDS < age < LOST_DAYS * DAY_SECONDS
            if not (old or (most_bytes and total > most_bytes) or may_be_lost):
                continue
            found = self._read(self.path / (id + INDEX))
            runs = age < DAY_SECONDS and (found is None or not found.ended)
            lost = may_be_lost and (found is None or (found.pending and not found.ended))
            if lost or ((old or (most_bytes and total > most_bytes)) and not runs):
                over.append(id)
        return over

    def open(self, recording: CallRecording, keys: Sequence[bytes]) -> io.BufferedIOBase:
        """Return the audio of a recording, decrypted, as a file that can be read from any place.

        keys: that may have encrypted it. Raises SealError, and OSError. A file that was not completed is read
        as far as it goes.
        """
        file = (self.path / recording.file).open("rb")
        if not recording.key:
            return file
        from rejoinder.agent.recording.sealing import SealedReader  # needs the extra record

        try:
            return io.BufferedReader(SealedReader(file, keys, not recording.ended, recording.id))
        except PipelineError:
            file.close()
            raise

    def decrypted(
        self, recording: CallRecording, keys: Sequence[bytes], size: int = 2**16
    ) -> Iterator[bytes]:
        """Yield the audio file of a recording, decrypted. Raises SealError, and OSError.

        A FLAC file that was not completed gets its length, without which some programs do not read it.
        """
        with self.open(recording, keys) as file:
            over = flac_length(file) if recording.form == "flac" else []
            file.seek(0)
            piece = bytearray(file.read(size))
            for place, bytes_ in over:
                piece[place : place + len(bytes_)] = bytes_
            while piece:
                yield bytes(piece)
                piece = bytearray(file.read(size))
