"""The recordings of one server: its settings, its thread, and how long recordings are kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rejoinder.agent.recording.folder import CallRecording, Folder
from rejoinder.agent.recording.recorder import AudioRecorder, RecordedCall
from rejoinder.agent.recording.running import RunningRecording
from rejoinder.agent.recording.writer import RecordingWriter
from rejoinder.agent.settings.recording import ALWAYS, RecordingSettings
from rejoinder.models.hints import NotInstalled, install

log = logging.getLogger(__name__)

CLEAN_SECONDS = 3600.0
"""Interval between two deletions of old recordings, in seconds."""
CLEAN_AGAIN_SECONDS = 60.0
"""Least time between two deletions where recordings are completed, in seconds."""
LAST_SECONDS = 10.0
"""Longest wait for the disk when the server ends, in seconds."""
MEGABYTE = 10**6
"""Bytes of a megabyte."""


class Recordings:
    """Makes the recorders of calls, and deletes old recordings.

    settings: ``recordings`` names the folder. count: counts a recording by how it ended. Raises SealError if
    the keys cannot be read, NotInstalled without the package that encrypts, and OSError if the folder cannot
    be written.
    """

    def __init__(self, settings: RecordingSettings, count: Callable[[str], None]) -> None:
        self.folder = Folder(settings.recordings_folder)
        self.folder.create()
        self.keys, self.key_id = keys_of(settings)
        self.form = settings.recording_format
        self.announcement = settings.recording_announcement.strip()
        self.records_announcement = settings.recording_includes_announcement
        self.from_start = settings.recording == ALWAYS
        self.count = count
        self._days, self._most = settings.recording_days, settings.recordings_mb * MEGABYTE
        self._writer = RecordingWriter()
        self._live: set[str] = set()
        self._grown = asyncio.Event()

    def recorder(self, call: RecordedCall) -> AudioRecorder:
        """Return the recorder of a new call."""
        return AudioRecorder(self, call)

    def begin(
        self, about: CallRecording, now: float, in_call: bool, failed: Callable[[str], None]
    ) -> RunningRecording:
        """Begin a recording at ``now``, by the loop's clock.

        in_call: whether audio of the call was heard before. failed: called in the thread, with the reason.
        """
        loop = asyncio.get_running_loop()
        self._live.add(about.id)

        def ended(outcome: str) -> None:
            self._live.discard(about.id)
            if outcome:
                self.count(outcome)
            self._grown.set()

        def done() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended, "complete")

        def broken(reason: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                loop.call_soon_threadsafe(ended, "")
                failed(reason)

        key = self.keys[0] if self.keys else None
        return RunningRecording(about, now, in_call, self.folder, key, self._writer, broken, done)

    def delete(self, id: str) -> None:
        """Delete a recording soon."""
        self._writer.submit(lambda: self._delete(id))

    def _delete(self, id: str) -> None:
        try:
            self.folder.delete([id])
        except OSError as error:
            log.error("recording %s was not deleted: %s", id, error)

    def discarded(self, about: CallRecording) -> None:
        """Count a recording that was discarded."""
        self._live.discard(about.id)
        self.count("discarded")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write recordings, and delete old ones, for the length of the block.

        At its end, wait up to ``LAST_SECONDS`` for the disk. Cancelling shortens no wait for the disk.
        """
        self._writer.begin()
        cleaning = asyncio.create_task(self._keep_clean(), name="recordings")
        try:
            yield
        finally:
            cleaning.cancel()
            await asyncio.wait([cleaning])
            if not await asyncio.to_thread(self._writer.end, LAST_SECONDS):
                log.error("recordings were not completed within %g s", LAST_SECONDS)

    async def _keep_clean(self) -> None:
        """Delete what is kept no longer, in a thread of its own: reading a large folder may take a while."""
        while True:
            await asyncio.to_thread(self._clean, frozenset(self._live))
            await asyncio.sleep(CLEAN_AGAIN_SECONDS)
            self._grown.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLEAN_SECONDS):
                    await self._grown.wait()

    def _clean(self, live: frozenset[str]) -> None:
        try:
            old = self.folder.expired(time.time(), self._days, self._most, live)
            self.folder.delete(old)
        except OSError as error:
            log.error("old recordings were not deleted: %s", error)
            return
        if old:
            log.info("%d recordings were deleted, as the settings say", len(old))


def keys_of(settings: RecordingSettings) -> tuple[Sequence[bytes], str]:
    """Return the keys of recordings, and the id of the one that encrypts; nothing where none is set.

    Raises SealError if they cannot be read, and NotInstalled without the package that encrypts.
    """
    if not settings.recording_key_file:
        return (), ""
    try:
        from rejoinder.agent.recording.sealing import key_id, read_keys
    except ModuleNotFoundError as error:
        hint = f"recording_key_file needs {error.name}, which is not installed; run: {install('record')}"
        raise NotInstalled(hint, name=error.name) from error
    keys = read_keys(Path(settings.recording_key_file).expanduser())
    return keys, key_id(keys[0]).hex()
