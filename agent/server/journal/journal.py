"""Writes the conversations of one server into a store, and finds those that other processes have begun."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.journal.recorder import REPLY_PART, STATE_PART, ConversationRecorder
from rejoinder.agent.server.journal.store import ConversationStore, WriteRefusal
from rejoinder.agent.server.journal.writes import Writes, retry_after
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.restoring import VERSION

log = logging.getLogger(__name__)

COALESCE_S = 0.05
"""Wait before a write for which no call waits, in seconds: changes that belong together come together."""
POSITION_S = 0.2
"""Interval between two writes of a position, in seconds. What is heard after the last one is said again."""
ALIVE_S = 5.0
"""Interval between two signs of life of each conversation, in seconds."""
SLOW_S = 0.05
"""Time of a write, in seconds, from which on no call waits for the next ones."""
WRITTEN_S = 0.25
"""Longest wait of a call for its write, in seconds. A disk that hangs holds up no conversation longer."""
FIND_S = 2.0
"""Longest wait for a conversation of another process, in seconds."""
LAST_WRITE_S = 4.0
"""Longest wait for the last write, and for the end of the store, when the server ends, in seconds."""
MAX_ENDED = 10_000
"""Most ended conversations to delete while the store fails. Older ones stay in it until they are too old."""


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation that another process has begun, and that a client may resume.

    key: the hash of its id. generation: of its owner. about: as for ``ConversationRecorder``. state,
    reply: as for ``Realtime.restore``.
    """

    key: str
    generation: int
    about: Mapping[str, Any]
    state: Mapping[str, Any]
    reply: Mapping[str, Any]

    @property
    def owner(self) -> str:
        """The hash of the API key that it counts for, "" for none."""
        return str(self.about["owner"])

    @property
    def session(self) -> str:
        """The id of its session."""
        return str(self.state["session"])

    @property
    def query(self) -> dict[str, str]:
        """The query of the request that began it."""
        return dict(self.about["query"])


class Journal:
    """The conversations of one server in a store.

    One task writes them all. It holds nothing but the newest state of each call, and the keys of
    ``MAX_ENDED`` ended ones. taken: called for a call whose conversation goes on at another server. meters:
    count the writes.
    """

    def __init__(self, store: ConversationStore, meters: Meters) -> None:
        self.taken: Callable[[ConversationRecorder], None] = lambda recorder: None
        self._store = store
        self._writes = Writes(meters)
        self._claiming: set[str] = set()
        self._recorders: dict[str, ConversationRecorder] = {}
        self._ended: deque[tuple[str, int]] = deque(maxlen=MAX_ENDED)
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._alive_at = 0.0
        self._ending = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write for the length of the block; at its end, write what is left and close the store.

        A store that hangs is left after ``LAST_WRITE_S``. Cancelling may lose the last changes.
        """
        writing = asyncio.create_task(self._write(), name="journal")
        try:
            yield
        finally:
            self._ending = True  # redis-py 8.1 swallows some cancels
            writing.cancel()
            await asyncio.wait([writing])
            try:
                async with asyncio.timeout(LAST_WRITE_S):
                    await self._flush()
                    await self._store.aclose()
            except Exception as error:
                log.warning("the store of conversations was not closed: %s", _reason(error))

    # --- calls ------------------------------------------------------------------------------------------

    def record(self, wire: Realtime, about: Mapping[str, Any], generation: int = 0) -> ConversationRecorder:
        """Return the recorder of a call that begins. generation: of ``claim``, 0 for a new conversation."""
        key = _key(wire.conversation)
        recorder = ConversationRecorder(self, wire, key, generation or 1, not generation, about)
        self._recorders[key] = recorder
        return recorder

    def end(self, recorder: ConversationRecorder, keep: bool) -> None:
        """Take the end of a call. keep: whether its client may go on with another process."""
        if self._recorders.get(recorder.key) is recorder:
            if not keep:
                del self._recorders[recorder.key]
                self._ended.append((recorder.key, recorder.generation))
            self.wake()

    def drop(self, found: Found) -> None:
        """Delete a conversation that was claimed and cannot go on."""
        self._ended.append((found.key, found.generation))
        self.wake()

    def wake(self) -> None:
        """Write soon: something has changed."""
        self._wake.set()

    async def written(self, recorder: ConversationRecorder) -> None:
        """Wait until the changes of a call are written, ``WRITTEN_S`` at most. Cancelling stops waiting.

        It does not wait while the store fails or is slow.
        """
        if self._recorders.get(recorder.key) is not recorder or not recorder.has_changed:
            return
        if self._writes.failures or self._writes.slow:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wake.set()
        self._urgent.set()
        try:
            async with asyncio.timeout(WRITTEN_S):
                await done
        except TimeoutError:
            self._writes.is_late(WRITTEN_S)

    # --- conversations of other processes ---------------------------------------------------------------

    async def find(self, conversation: str, shown: str, keys: Keys) -> Found | None:
        """Return a conversation that this client may resume; None if there is none, or the store fails.

        shown: the key that the client presents. For one that can begin and resume nothing, the store is not
        read. A conversation whose API key this server does not know is not returned. Cancelling stops the
        wait.
        """
        if not keys.may_resume(shown):
            return None
        key = _key(conversation)
        try:
            found = await self._read(key)
            if found is None or not keys.serves(found.owner):
                return None
            if (form := found.state["version"]) != VERSION:
                log.warning(
                    "a conversation cannot go on: it has form %s, and this server reads %s", form, VERSION
                )
                return None
            same = secrets.compare_digest(found.about["shown"], hashed(shown))
        except Exception as error:
            log.warning("a conversation was not looked up: %s", _reason(error))
            return None
        if key in self._recorders or (key, found.generation) in self._ended:
            return None  # this process runs it, or has ended it
        return found if same or (found.owner and found.owner == keys.owner(shown)) else None

    async def claim(self, found: Found) -> Found | None:
        """Become the owner of a conversation; return it as it is then.

        None where another process was faster, or another call of this one. Cancelling stops the wait.
        """
        if found.key in self._recorders or found.key in self._claiming:
            return None
        self._claiming.add(found.key)
        try:
            async with asyncio.timeout(FIND_S):
                claimed = await self._store.claim(found.key, found.generation)
            return await self._read(found.key) if claimed else None
        except Exception as error:
            log.warning("a conversation was not taken over: %s", _reason(error))
            return None
        finally:
            self._claiming.discard(found.key)

    async def _read(self, key: str) -> Found | None:
        async with asyncio.timeout(FIND_S):
            saved = await self._store.find(key)
        if saved is None or STATE_PART not in saved.parts:
            return None
        state = json.loads(saved.parts[STATE_PART])
        reply = json.loads(saved.parts.get(REPLY_PART, b"{}"))
        return Found(key, saved.generation, state["about"], state, reply)

    # --- the writer -------------------------------------------------------------------------------------

    async def _write(self) -> None:
        while not self._ending:
            if self._writes.failures and (self._recorders or self._ended):
                await asyncio.sleep(retry_after(self._writes.failures))
            else:
                await self._changes()
            self._wake.clear()
            self._urgent.clear()
            await self._flush()

    async def _changes(self) -> None:
        """Wait until something is to be written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause(asyncio.get_running_loop().time())):
                await self._wake.wait()
        if not self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(COALESCE_S):
                    await self._urgent.wait()

    def _pause(self, now: float) -> float | None:
        """Return the seconds until the next write that no change asks for; None if there is none."""
        if not self._recorders:
            return None
        if any(recorder.speaking for recorder in self._recorders.values()):
            return POSITION_S
        return max(0.0, self._alive_at - now)

    async def _flush(self) -> None:
        """Write all that has changed until now, and answer the calls that wait for it."""
        waiting, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            written = await self._save_all() + len(self._ended)
            while self._ended:
                ended = self._ended[0]
                await self._store.drop(*ended)
                if self._ended[0] == ended:  # else it was the oldest of too many
                    self._ended.popleft()
            if written:
                self._writes.succeeded(loop.time() - began, SLOW_S)
        except asyncio.CancelledError:  # the last write follows
            self._write_again()
            raise
        except Exception as error:
            self._writes.failed(_reason(error))
            self._write_again()
        finally:
            self._writes.keeps(len(self._recorders))
            for done in waiting:
                if not done.done():
                    done.set_result(None)

    def _write_again(self) -> None:
        """Let the next write take everything: the recorders have handed out what was not written."""
        self._alive_at = 0.0
        for recorder in self._recorders.values():
            recorder.rewrite()

    async def _save_all(self) -> int:
        """Write what has changed; return the number of conversations that were written."""
        now = asyncio.get_running_loop().time()
        if alive := now >= self._alive_at:
            self._alive_at = now + ALIVE_S
        saves, written = [], []
        for recorder in list(self._recorders.values()):
            if self._recorders.get(recorder.key) is not recorder:
                continue  # its call has ended meanwhile
            if not (alive or recorder.has_changed):
                continue
            try:
                save = recorder.save()
            except Exception:  # of one call: the others are written
                log.exception("a conversation cannot be written")
                self._stop(recorder, "it cannot be written")
                continue
            if not (save.parts or alive or save.new):
                continue
            if recorder.oversized:
                self._stop(recorder, "it is too long")
                self._ended.append((recorder.key, recorder.generation))
                continue
            saves.append(save)
            written.append(recorder)
            await asyncio.sleep(0)  # let other calls run in between
        if not saves:
            return 0
        refusals = await self._store.save(saves)
        for recorder in written:
            recorder.new = False
        for key, refusal in refusals.items():
            if (refused := self._recorders.get(key)) is None:
                continue
            self._stop(refused, refusal.value)
            if refusal is WriteRefusal.TAKEN:
                self.taken(refused)
        return len(saves)

    def _stop(self, recorder: ConversationRecorder, reason: str) -> None:
        del self._recorders[recorder.key]
        log.warning("a conversation is not kept any longer: %s", reason)


def _key(conversation: str) -> str:
    """Return the key of a conversation: who reads the store cannot resume it."""
    return hashlib.sha256(conversation.encode()).hexdigest()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
