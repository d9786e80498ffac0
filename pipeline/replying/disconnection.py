"""What happens to the replies while the client is disconnected, and when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.replying.current_reply import CurrentReply
from rejoinder.pipeline.replying.reply_records import ReplyRecords
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor


class Disconnection:
    """Stops play-out when the client has gone, and plays the unheard audio again when it returns."""

    def __init__(
        self, current: CurrentReply, records: ReplyRecords, floor: Endpointer, listeners: Listeners
    ) -> None:
        self._current = current
        self._records = records
        self._floor = floor
        self._listeners = listeners

    def begin(self, since: float) -> tuple[int, float] | None:
        """Stop play-out until ``end``: the client has been disconnected since time ``since``.

        Returns the number of the last reply that played and the seconds of it played by then, or None.
        """
        self._listeners.cut(since)
        self._current.hold(since)
        last = self._current.reply if self._current.committed else self._records.last
        return (last.id, last.output.playout.played(since)) if last else None

    def end(self, unheard: Mapping[int, float], is_next: bool) -> None:
        """Resume play-out; the client plays the last seconds of some replies again, one after the other.

        unheard: these seconds by the number of the reply. A reply that had ended becomes current again: it
        can be interrupted, and the history records the rest once it has played. is_next: whether another
        reply is wanted already, so that an ended reply stays ended.
        """
        now, seconds = asyncio.get_running_loop().time(), 0.0
        current = self._current.reply
        ended = [reply for reply in self._records.numbered(unheard) if reply is not current]
        self._current.release()
        for reply in [*ended, current] if current else ended:
            reply.output.playout.sent_again(unheard.get(reply.id, 0.0), now + seconds)
            seconds += unheard.get(reply.id, 0.0)
        self._listeners.play_again(seconds, now)
        if ended and not is_next and current is None and self._floor.floor is Floor.NOBODY:
            for reply in ended:
                self._records.settle(reply, reply.output.playout.played(now), cut=True)
            self._current.play_again(ended)
