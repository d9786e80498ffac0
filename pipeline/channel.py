"""A bounded, closable, single-consumer channel between two stages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel was closed: nothing more can be sent, and everything sent was received."""


class Channel(Generic[T]):
    """Carry items from one stage to the next, at most ``size`` at a time.

    Waiting to send is the backpressure. Closing ends the stream for the receiver after what is already
    buffered. All methods belong to one event loop. There may be several senders and one receiver.

    peak: the most items ever held at once.
    waited: seconds that senders spent waiting for room, added up.
    """

    def __init__(self, size: int, name: str = "") -> None:
        if size < 1:
            raise ValueError("a channel needs a size of at least 1: every queue is bounded")
        self.size = size
        self.name = name
        self.peak = 0
        self.waited = 0.0
        self._items: deque[T] = deque()
        self._closed = False
        self._readers: deque[asyncio.Future[None]] = deque()
        self._writers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Count the items that wait to be received."""
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Tell whether ``close`` was called."""
        return self._closed

    def send_nowait(self, item: T, leave: int = 0) -> bool:
        """Put an item in if more than ``leave`` places are free; return whether it went in. Raises Closed."""
        if self._closed:
            raise Closed(self.name)
        if len(self._items) >= self.size - leave:
            return False
        self._items.append(item)
        self.peak = max(self.peak, len(self._items))
        _wake(self._readers)
        return True

    async def send(self, item: T, leave: int = 0) -> None:
        """Put an item in, waiting for room. Raises Closed. When cancelled, the item was not sent.

        leave: places to keep free for senders who may not wait.
        """
        if self.send_nowait(item, leave):
            return
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            while not self.send_nowait(item, leave):
                await _wait(self._writers)
        finally:
            self.waited += loop.time() - since

    async def receive(self) -> T:
        """Take the oldest item, waiting for one. Raises Closed at the end.

        Cancelling loses nothing: the item is taken only after the last point where this can be cancelled.
        """
        while not self._items:
            if self._closed:
                raise Closed(self.name)
            await _wait(self._readers)
        item = self._items.popleft()
        _wake(self._writers)
        return item

    def receive_nowait(self, most: int) -> list[T]:
        """Take up to ``most`` of the items that are here."""
        items = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        for _ in items:
            _wake(self._writers)
        return items

    def close(self) -> None:
        """End the stream. Items already inside are still delivered; closing twice does no harm."""
        self._closed = True
        for waiting in (self._readers, self._writers):
            while waiting:
                _wake(waiting)

    def __aiter__(self) -> Channel[T]:
        """Iterate over what arrives until the channel is closed and empty."""
        return self

    async def __anext__(self) -> T:
        """Receive the next item."""
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None


def _wake(waiting: deque[asyncio.Future[None]]) -> None:
    while waiting:
        waiter = waiting.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return


async def _wait(waiting: deque[asyncio.Future[None]]) -> None:
    waiter = asyncio.get_running_loop().create_future()
    waiting.append(waiter)
    try:
        await waiter
    except asyncio.CancelledError:
        if waiter in waiting:
            waiting.remove(waiter)
        elif waiter.done() and not waiter.cancelled():
            _wake(waiting)  # we were woken and cannot act on it: pass the turn on, or it would be lost
        raise
