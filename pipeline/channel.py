"""A bounded, closable, single-consumer channel between two stages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel is closed: no item can be sent, and none is left to receive."""


class Channel(Generic[T]):
    """Carries items from one stage to the next, and holds at most ``size`` of them.

    A full channel makes senders wait, which is the backpressure. After ``close`` the receiver gets the items
    that are left. Use a channel on one event loop, with any number of senders and one receiver.

    peak: the most items ever held at once.
    waited: seconds that senders spent waiting for room, added up.
    """

    def __init__(self, size: int, name: str = "") -> None:
        if size < 1:
            raise ValueError(f"the size of a channel is {size}: it must be at least 1")
        self.size = size
        self.name = name
        self.peak = 0
        self.waited = 0.0
        self._items: deque[T] = deque()
        self._closed = False
        self._readers: deque[asyncio.Future[None]] = deque()
        self._writers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """The number of items that wait to be received."""
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def send_nowait(self, item: T, leave: int = 0) -> bool:
        """Send an item if more than ``leave`` places are free; return whether it was sent. Raises Closed."""
        if self._closed:
            raise Closed(self.name)
        if len(self._items) >= self.size - leave:
            return False
        self._items.append(item)
        self.peak = max(self.peak, len(self._items))
        _wake(self._readers)
        return True

    async def send(self, item: T, leave: int = 0) -> None:
        """Send an item; wait for room if needed. Raises Closed. If it is cancelled, the item was not sent.

        leave: places to keep free for senders that cannot wait.
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
        """Return the oldest item; wait for one if needed. Raises Closed at the end.

        Cancelling loses no item: it is taken after the last point at which the call can be cancelled.
        """
        while not self._items:
            if self._closed:
                raise Closed(self.name)
            await _wait(self._readers)
        item = self._items.popleft()
        _wake(self._writers)
        return item

    def receive_nowait(self, most: int) -> list[T]:
        """Return the oldest ``most`` items, or as many as there are."""
        items = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        for _ in items:
            _wake(self._writers)
        return items

    def close(self) -> None:
        """End the stream. Items in the channel are still delivered. Closing twice has no effect."""
        self._closed = True
        for waiting in (self._readers, self._writers):
            while waiting:
                _wake(waiting)

    def __aiter__(self) -> Channel[T]:
        """Iterate over the items until the channel is closed and empty."""
        return self

    async def __anext__(self) -> T:
        """Return the next item. Cancelling loses no item."""
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
            _wake(waiting)  # this waiter was woken but is cancelled: wake the next one instead
        raise
