"""One recording that runs: from the first sample to the complete file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from rejoinder.agent.recording.audio_file import AudioFile
from rejoinder.agent.recording.folder import CallRecording, Folder, RecordedSpan
from rejoinder.agent.recording.timeline import RecordedBlock, RecordingTimeline
from rejoinder.agent.recording.writer import RecordingWriter

log = logging.getLogger(__name__)

MOST_BLOCKS = 16
"""Most blocks of one call that wait for the disk: about half a minute."""
TOO_SLOW = "the disk is too slow"
"""Why a recording ended whose blocks waited too long."""
CALLER_SIDE = "caller"
"""The caller's side, in the spans of a recording."""
AGENT_SIDE = "agent"
"""The agent's side."""
WRITE_ERRORS = (OSError, RuntimeError, ValueError)
"""Errors of a file that cannot be written: the disk's, libsndfile's, and those of a file that is closed.
Others are faults of this program, and end the recording, too."""


class RunningRecording:
    """Writes one recording. Its methods do not wait: a thread opens, writes and closes the file.

    about: what is known of it. in_call: whether audio of the call was heard before. key: encrypts it, None
    for none. failed: called with the reason, in the thread or by the caller of a method, if the file cannot
    be written; then it writes nothing more. done: called in the thread when the file is complete.
    """

    def __init__(
        self,
        about: CallRecording,
        now: float,
        in_call: bool,
        folder: Folder,
        key: bytes | None,
        writer: RecordingWriter,
        failed: Callable[[str], None],
        done: Callable[[], None],
    ) -> None:
        self.about = about
        self.timeline = RecordingTimeline(now, in_call)
        self._folder = folder
        self._key = key
        self._writer = writer
        self._failed = failed
        self._done = done
        self._file: AudioFile | None = None  # of the thread
        self._over = False  # of the thread
        self._given = 0
        self._given_up = False
        self._written = 0  # of the thread
        self._submit(self._open)

    def write(self, now: float) -> None:
        """Give the thread what no longer changes. Call it every few seconds, also in silence."""
        while block := self.timeline.take(now):
            self._give(block)

    def announced(self) -> None:
        """Note that the announcement was heard: the recording may be kept."""
        self.about = self.about.model_copy(update={"announced": True, "pending": False})
        self._submit(self._note)

    def end(self, now: float, reason: str, spans: list[RecordedSpan]) -> None:
        """Complete the recording. reason: why it ends. spans: when the caller spoke."""
        while block := self.timeline.take(now, whole=True):
            self._give(block)
        self._submit(lambda: self._close(reason, spans))

    def discard(self) -> None:
        """Delete the recording."""
        self._submit(self._delete)

    def _give(self, block: RecordedBlock) -> None:
        if self._given - self._written >= MOST_BLOCKS:
            self.break_off(TOO_SLOW)
            return
        self._given += 1
        self._submit(lambda: self._write(block))

    def _submit(self, job: Callable[[], None]) -> None:
        if not self._writer.submit(job):
            self.break_off(TOO_SLOW)

    def break_off(self, reason: str) -> None:
        """End the recording at once: the thread may be stuck, and closes the file when it can."""
        if not self._given_up:
            self._given_up = True
            self._writer.submit(lambda: self._fail(reason))
            self._failed(reason)

    # --- in the thread ----------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            path, id = self._folder.path / self.about.file, self.about.id
            self._file = AudioFile(path, self.about.form, self._key, id)
            self._folder.save(self.about)
        except Exception as error:
            self._fail(_reason(error))

    def _note(self) -> None:
        if self._over or self._file is None or self._file.deleted:
            return
        try:
            self._folder.save(self.about)
        except Exception as error:
            self._fail(_reason(error))

    def _write(self, block: RecordedBlock) -> None:
        self._written += 1
        if self._over or self._file is None:
            return
        try:
            self._file.write(block)
        except Exception as error:
            self._fail(_reason(error))

    def _close(self, reason: str, spans: list[RecordedSpan]) -> None:
        if self._over or self._file is None:
            return
        try:
            self._file.close()
            if not self._file.deleted:
                self._save(self._file, reason, spans)
        except Exception as error:
            self._fail(_reason(error), spans)
        else:
            self._over = True
            self._done()

    def _fail(self, reason: str, spans: Sequence[RecordedSpan] = ()) -> None:
        """Close the file, which keeps what it has. spans: where it was to be completed."""
        if self._over:
            return
        self._over = True
        if self._file:
            self._file.give_up()
            with suppress(*WRITE_ERRORS):
                if not self._file.deleted:
                    self._save(self._file, reason, spans)
        if not self._given_up:
            self._failed(reason)

    def _save(self, file: AudioFile, reason: str, spans: Sequence[RecordedSpan]) -> None:
        agent = [
            RecordedSpan(side=AGENT_SIDE, begin=round(begin, 3), end=round(end, 3), turn=turn)
            for turn, begin, end in file.spans
        ]
        update = {
            "seconds": round(file.seconds, 3),
            "ended": reason,
            "spans": sorted([*spans, *agent], key=lambda one: one.begin),
        }
        self._folder.save(self.about.model_copy(update=update))

    def _delete(self) -> None:
        self._over = True
        if self._file:
            self._file.give_up()
        try:
            self._folder.delete([self.about.id])
        except OSError as error:
            log.error("recording %s was not deleted: %s", self.about.id, error)


def _reason(error: Exception) -> str:
    if not isinstance(error, WRITE_ERRORS):
        log.error("a recording was not written", exc_info=error)
    said = error.strerror if isinstance(error, OSError) else str(error)
    return said or type(error).__name__
