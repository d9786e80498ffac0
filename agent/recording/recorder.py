"""The recorder of one call: it announces, starts and stops recordings, and never ends the call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rejoinder.agent.recording.announcement import Announcement
from rejoinder.agent.recording.changes import RecordingChange
from rejoinder.agent.recording.folder import CallRecording, RecordedSpan, new_id
from rejoinder.agent.recording.guarded import GuardedListeners
from rejoinder.agent.recording.running import CALLER_SIDE, RunningRecording
from rejoinder.pipeline import (
    RATE,
    BackchannelEnded,
    EndOfTurn,
    Event,
    NothingSaid,
    Options,
    OverlapEnded,
    OverlapStarted,
    ReplyRequest,
    Session,
    SpeechStarted,
)

if TYPE_CHECKING:
    from rejoinder.agent.recording.recordings import Recordings

log = logging.getLogger(__name__)

CHECK_S = 0.05
"""Interval between two checks whether the announcement can be spoken, or was heard, in seconds."""
ANNOUNCEMENT_TRIES = 3
"""How often the announcement is spoken if something cuts it off. Without it there is no recording."""
WRITE_S = 2.0
"""Interval between two blocks for the file in silence, in seconds."""
MOST_SPANS = 10_000
"""Most turns of the caller whose times are kept."""
MOST_CHANGES = 64
"""Most changes that wait to be sent to the client."""
CALL_ENDED = "the call has ended"
"""Why a recording ended with its call."""
ENDED_IN_CALL = "stopped"
"""Why a recording ended in its call."""
FAULT = "an error in the server: see its log"
"""Why a recording ended in which this program has a fault."""
NOT_ANNOUNCED = "the announcement was not heard"
"""Why there is no recording."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The call that is recorded. id, wire: its id and protocol. caller, called: numbers, "" if unknown."""

    id: str
    wire: str = ""
    caller: str = ""
    called: str = ""


class AudioRecorder:
    """Records one call: from its start, or when asked. Only ``run`` and ``record`` wait.

    recordings: those of the server. call: which one it is.
    """

    def __init__(self, recordings: Recordings, call: RecordedCall) -> None:
        self._recordings = recordings
        self._call = call
        self._session: Session | None = None
        self._running: RunningRecording | None = None
        self._asked: bool | None = None  # to begin, with (True) or without the announcement
        self._beginning = False  # what was asked for, until it is announced, or is no longer wanted
        self._greeting = ""
        self._announcement: Announcement | None = None
        self._listener: GuardedListeners | None = None
        self._heard = 0  # samples of the caller since the call began
        self._spans: deque[RecordedSpan] = deque(maxlen=MOST_SPANS)
        self._speaks_since: float | None = None
        self._changes: deque[RecordingChange] = deque(maxlen=MOST_CHANGES)
        self._wanted, self._changed = asyncio.Event(), asyncio.Event()
        self._over = False
        self._ended = ""  # why the last recording ended
        if recordings.from_start:
            self.start()

    @property
    def running(self) -> bool:
        """Whether the call is recorded now."""
        return self._running is not None

    def deferring(self, options: Options) -> Options:
        """Return the options of the call's session: the greeting comes after the announcement."""
        if self._asked and self._recordings.announcement:
            self._greeting = options.greeting
            return replace(options, greeting="")
        return options

    # --- the verbs of clients and agents ----------------------------------------------------------------

    def ask(self, begin: bool, announce: bool = True) -> None:
        """Begin a recording as ``start`` does, or end it."""
        if begin:
            self.start(announce)
        else:
            self.stop()

    def start(self, announce: bool = True) -> None:
        """Begin a recording, unless one runs. announce: speak the announcement first, if there is one."""
        if self._over:
            return
        if self._running:
            self._tell(RecordingChange(self._running.about.id, True))
            return
        if self._beginning:
            return
        self._asked = announce or bool(self._asked)  # one that is to be announced stays so
        self._wanted.set()

    def stop(self) -> None:
        """End the recording, or do not begin it."""
        self._asked, self._beginning = None, False
        self._wanted.set()  # the greeting waits no longer
        if self._running:
            with self._ending_on_fault():
                self._end(ENDED_IN_CALL)
        else:
            self._tell(RecordingChange("", False, ENDED_IN_CALL))

    async def record(self, announce: bool = True) -> str:
        """Begin a recording as ``start`` does, and wait; return "" once it runs, or why there is none.

        Cancelling stops the wait.
        """
        self.start(announce)
        while (self._asked is not None or self._beginning) and not self._over:  # noqa: ASYNC110 - play-out
            await asyncio.sleep(CHECK_S)
        return "" if self.running else self._ended

    # --- what happens in the call -----------------------------------------------------------------------

    def hear(self, pcm: bytes) -> None:
        """Take the caller's audio as the agent hears it: 16 kHz, 16-bit, mono."""
        self._heard += len(pcm) // 2
        if self._running:
            with self._ending_on_fault():
                now = asyncio.get_running_loop().time()
                self._running.timeline.hear(pcm, now)
                self._write(now)

    def take(self, happened: Event) -> None:
        """Take an event of the session."""
        if self._running:
            with self._ending_on_fault():
                self._note(happened)
                self._write(asyncio.get_running_loop().time())

    def _write(self, now: float) -> None:
        assert self._running
        if self._is_cut():
            self._discard()
        else:
            self._running.write(now)

    def _is_cut(self) -> bool:
        """Return whether the client has reported later that it has not played all of the announcement."""
        pending = self._running is not None and self._running.about.pending  # then ``_begin`` looks
        return self._announcement is not None and not self._announcement.whole and not pending

    def _note(self, happened: Event) -> None:
        match happened:
            case SpeechStarted(at) | OverlapStarted(at) if self._speaks_since is None:
                self._speaks_since = self._place(at)
            case EndOfTurn(_, at) | NothingSaid(at) if self._speaks_since is not None:
                self._end_span(self._place(at))
            case OverlapEnded(is_over=True) | BackchannelEnded() if self._speaks_since is not None:
                self._end_span(self._place(self._heard))

    def _place(self, at: int) -> float:
        """Return where a sample of the caller is, in seconds of the recording."""
        assert self._running
        return max(0.0, (self._running.timeline.heard_end - (self._heard - at)) / RATE)

    def _end_span(self, at: float) -> None:
        begin, self._speaks_since = self._speaks_since, None
        if begin is not None and at > begin:
            self._spans.append(RecordedSpan(side=CALLER_SIDE, begin=round(begin, 3), end=round(at, 3)))

    def end(self) -> None:
        """Take the end of the call."""
        self._over = True
        with self._ending_on_fault():
            self._end(CALL_ENDED)

    async def run(self, session: Session, tell: Callable[[RecordingChange], Awaitable[None]]) -> None:
        """Begin recordings when they are asked for, and tell of all changes, until cancelled.

        Raises what ``tell`` raises. Cancelling leaves the recording to ``end``.
        """
        self._session = session
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._begin_those_asked_for(session), name="recorder-begin")
            while True:  # the client hears of the begin before the announcement is over
                await self._changed.wait()
                self._changed.clear()
                while self._changes:
                    await tell(self._changes.popleft())

    async def _begin_those_asked_for(self, session: Session) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITE_S if self._running else None):
                    await self._wanted.wait()
            self._wanted.clear()
            with self._ending_on_fault():
                if self._asked is not None:
                    await self._begin(session, announce=self._asked)
                self._greet(session)
                if self._running:  # a silent client sends nothing that would write the rest
                    self._write(asyncio.get_running_loop().time())

    # --- one recording ----------------------------------------------------------------------------------

    async def _begin(self, session: Session, announce: bool) -> None:
        self._asked, self._beginning = None, True
        self._forget_announcement()
        included = self._recordings.records_announcement
        if not (announce and self._recordings.announcement):
            self._open(session)
            self._beginning = False
            return
        for _ in range(ANNOUNCEMENT_TRIES):
            await self._wait_at_rest(session)
            if not self._is_wanted():
                return
            if included:
                self._open(session, pending=True)
            heard = await self._announce(session)
            if heard and not included and (self._is_wanted() or self._asked is not None):
                self._asked = None  # where it was stopped and asked for again meanwhile, it is announced too
                self._open(session)
            if heard and self._running:
                self._running.announced()
                break
            if not self._is_wanted():  # it was stopped, or the file cannot be written
                return
            self._discard()  # what is said before the next try is not kept
            self._beginning = True
        self._beginning = False

    def _is_wanted(self) -> bool:
        """Return whether the recording that is about to begin was not stopped."""
        return self._beginning

    def _greet(self, session: Session) -> None:
        """Say the greeting that waited for the announcement, unless the caller has spoken meanwhile."""
        greeting, self._greeting = self._greeting, ""
        if greeting and session.at_rest:
            session.respond(ReplyRequest(words=greeting))

    async def _announce(self, session: Session) -> bool:
        """Speak the announcement, which speech does not stop; return whether all of it was heard."""
        words = self._recordings.announcement
        session.respond(ReplyRequest(words=words, speaks=True, interruptible=False))
        if (reply := session.reply) is None:
            return False
        self._watch(session, announcement := Announcement(reply.id))
        while session.reply is reply:  # noqa: ASYNC110 - play-out has no event
            await asyncio.sleep(CHECK_S)
        return reply.outcome.status == "completed" and announcement.heard

    def _watch(self, session: Session, announcement: Announcement) -> None:
        self._forget_announcement()
        self._announcement = announcement
        session.listeners.add(announcement)

    def _forget_announcement(self) -> None:
        if self._announcement and self._session:
            self._session.listeners.remove(self._announcement)
        self._announcement = None

    async def _wait_at_rest(self, session: Session) -> None:
        while not session.at_rest:  # noqa: ASYNC110 - the floor has no event
            await asyncio.sleep(CHECK_S)

    def _open(self, session: Session, pending: bool = False) -> None:
        """Begin a file. pending: it may not be kept unless the announcement is heard."""
        loop = asyncio.get_running_loop()
        now = time.time()
        about = CallRecording(
            id=new_id(now),
            call=self._call.id,
            caller=self._call.caller,
            called=self._call.called,
            wire=self._call.wire,
            began=round(now, 3),
            form=self._recordings.form,
            key=self._recordings.key_id,
            pending=pending,
        )
        self._spans.clear()
        self._speaks_since = None

        def failed(reason: str) -> None:
            loop.call_soon_threadsafe(self._failed, about.id, reason)

        self._running = self._recordings.begin(about, loop.time(), self._heard > 0, failed)
        self._listener = GuardedListeners(self._ending_on_fault, self._running.timeline)
        session.listeners.add(self._listener)
        self._tell(RecordingChange(about.id, True))
        log.info("call %s: recording %s has begun", self._call.id, about.id)

    def _end(self, reason: str) -> None:
        if self._running and (self._running.about.pending or self._is_cut()):
            self._discard()
        elif self._running:
            self._running.end(asyncio.get_running_loop().time(), reason, list(self._spans))
            running = self._let_go()
            log.info("call %s: recording %s has ended: %s", self._call.id, running.about.id, reason)
            self._tell(RecordingChange(running.about.id, False, reason))

    def _discard(self) -> None:
        id = ""
        if self._running:
            running = self._let_go()
            running.discard()
            self._recordings.discarded(running.about)
            id = running.about.id
        log.warning("call %s is not recorded: %s", self._call.id, NOT_ANNOUNCED)
        self._tell(RecordingChange(id, False, NOT_ANNOUNCED))

    def _failed(self, id: str, reason: str) -> None:
        about = {"call": self._call.id, "recording": id}  # no context of the call: the thread calls this
        text = "call %s: recording %s has ended, the call goes on: %s"
        log.error(text, self._call.id, id, reason, extra=about)
        self._recordings.count("failed")
        if self._running and self._running.about.id == id:
            if self._let_go().about.pending:
                self._recordings.delete(id)
            self._tell(RecordingChange(id, False, reason))

    @contextmanager
    def _ending_on_fault(self) -> Iterator[None]:
        """End the recording, and not the call, where the block fails: that is a fault in this program."""
        try:
            yield
        except Exception:
            log.exception("call %s: its recording has ended, the call goes on", self._call.id)
            self._beginning = False
            if self._running:
                running = self._let_go()
                running.break_off(FAULT)
                if running.about.pending:
                    running.discard()
                self._tell(RecordingChange(running.about.id, False, FAULT))

    def _let_go(self) -> RunningRecording:
        """Return the running recording, which is no longer this recorder's."""
        assert self._running
        running, self._running, self._beginning = self._running, None, False
        if self._session and self._listener:
            self._session.listeners.remove(self._listener)
        self._listener = None
        return running

    def _tell(self, change: RecordingChange) -> None:
        self._ended = change.reason
        self._changes.append(change)
        self._changed.set()
