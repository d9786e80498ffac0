"""The sockets of one call, one after the other: opens them, sends, receives, and resumes the conversation."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress

from tenacity import AsyncRetrying, retry_if_exception, stop_before_delay, wait_random_exponential
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.client.conversation import Conversation
from rejoinder.agent.client.events import CallEvent, Raw, Reconnected
from rejoinder.agent.client.socket import (
    CLOSE_SECONDS,
    NORMAL,
    CallLost,
    closed,
    greeting,
    may_come_back,
    moved,
    open_socket,
    realtime_url,
    returning,
)

log = logging.getLogger(__name__)

GREETING_SECONDS = 10.0
"""Longest wait for a server's greeting on an open socket."""
MOST_UNSENT = 100
"""Most messages that wait for a lost socket. Audio never waits."""
FIRST_WAIT = 0.5
"""Upper limit of the wait before the first retry; it doubles each time. The wait is random below it."""
LONGEST_WAIT = 8.0
"""Upper limit of the wait before any retry."""


class Connection:
    """Connects a conversation with its server.

    url, key, reconnect_s: as for ``connect``. failure: why the call cannot continue over another socket, None
    while it can. Raises ValueError if ``url`` is not the address of a server.
    """

    def __init__(self, url: str, key: str | None, reconnect_s: float, conversation: Conversation) -> None:
        self.failure: CallLost | None = None
        self._home = self._url = realtime_url(url)
        self._key, self._reconnect_s = key, reconnect_s
        self._conversation = conversation
        self._socket: ClientConnection | None = None
        self._waiting: deque[str] = deque()

    # --- messages ---------------------------------------------------------------------------------------

    async def send(self, message: str) -> bool:
        """Send a message. Return False if the socket is lost but may come back.

        Cancelling may leave the message unsent. Raises CallLost if the call is over.
        """
        if self.failure or self._conversation.over or self._socket is None:
            raise self.failure or CallLost(self._conversation.over)
        try:
            await self._socket.send(message)
        except ConnectionClosed as error:
            if not self._may_return(closed(error)):
                raise closed(error) from error
            return False
        return True

    async def post(self, message: str) -> None:
        """Send a message, over the next socket if this one is lost.

        Cancelling may leave the message unsent. Raises CallLost if the call is over, or if too many messages
        wait.
        """
        if await self.send(message):
            return
        if len(self._waiting) == MOST_UNSENT:
            raise CallLost(
                f"{MOST_UNSENT} messages wait for a lost socket: iterate over the call, so that it reconnects"
            )
        self._waiting.append(message)

    async def receive(self) -> list[CallEvent]:
        """Return the next events; none for a message that only the client needs, or if the call is over.

        Opens another socket if this one is lost. Cancelling loses no event. Raises CallLost if the call
        cannot be resumed.
        """
        assert self._socket is not None, "begin() opens the first socket"
        try:
            event = self._conversation.take(await self._socket.recv())
        except ConnectionClosed as error:
            return await self._resume(closed(error))
        except CallLost as error:
            self.failure = error
            raise
        return [] if event is None else [event]

    async def close(self) -> None:
        """Close the socket; if it is lost, open another one to end the conversation on the server.

        Cancelling leaves no open socket; the server may keep the conversation until its usual limit.
        """
        if self._socket is None:
            return
        await self._socket.close()
        conversation = self._conversation
        tried = self.failure is not None and self._reconnect_s > 0
        if conversation.id and self._socket.protocol.close_rcvd is None and not tried:
            place = returning(self._url, conversation.id, conversation.last_event)
            conversation.id = ""
            with suppress(CallLost, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    socket, _ = await open_socket(place, self._key)
                await socket.close()

    # --- opening and resuming ---------------------------------------------------------------------------

    async def begin(self) -> Reconnected:
        """Open a socket, with retries if they may help. Cancelling leaves no open socket. Raises CallLost."""
        tries = AsyncRetrying(
            retry=retry_if_exception(self._is_passing),
            wait=wait_random_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
            stop=stop_before_delay(self._reconnect_s),
            reraise=True,
        )
        return await tries(self._open)

    def _may_return(self, lost: CallLost) -> bool:
        return self._reconnect_s > 0 and may_come_back(lost, bool(self._conversation.session))

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, CallLost) and not self._conversation.over and self._may_return(error)

    async def _resume(self, lost: CallLost) -> list[CallEvent]:
        """Open another socket. Returns no event if the call is over. Raises CallLost if none can be opened.

        If the server no longer has the conversation, the first events are the ends of the unfinished replies.
        """
        conversation = self._conversation
        if conversation.over or lost.code == NORMAL:
            conversation.over = conversation.over or str(lost)
            return []
        if not self._may_return(lost):
            self.failure = lost
            raise lost
        log.warning("%s; calling again", lost)
        try:
            back = await self.begin()
        except CallLost as error:
            if self._is_over():  # hung up meanwhile
                return []
            self.failure = error
            raise
        return [back] if back.resumed else [*conversation.break_off(str(lost)), back]

    def _is_over(self) -> bool:
        return bool(self._conversation.over)

    async def _open(self) -> Reconnected:
        conversation = self._conversation
        if conversation.over:
            raise CallLost(conversation.over, NORMAL)
        place = returning(self._url, conversation.id, conversation.last_event, conversation.played())
        try:
            socket, there = await open_socket(place, self._key)
        except CallLost:
            self._url = self._home  # the server that took the call instead may be gone
            raise
        self._url = moved(self._url, there)
        try:
            return await self._greeted(socket)
        except ConnectionClosed as error:
            raise closed(error) from error
        except TimeoutError as error:
            reason = (
                f"{self._url} sent no session.created within {GREETING_SECONDS:g} s: is it a Realtime server?"
            )
            raise CallLost(reason) from error
        finally:
            if self._socket is not socket:
                socket.transport.abort()
                await socket.wait_closed()

    async def _greeted(self, socket: ClientConnection) -> Reconnected:
        """Begin or resume the conversation over a socket, and make it the call's socket."""
        conversation = self._conversation
        async with asyncio.timeout(GREETING_SECONDS):
            hello = await greeting(socket)
            resumed = conversation.resumed_by(hello)
            back = await _resumption(socket) if resumed else {}
        if item := back.get("item_id"):
            conversation.resent(item, back.get("audio_start_ms", 0))
        for message in [] if resumed else conversation.start_again(hello):
            await socket.send(message)
        for message in conversation.unconfirmed():
            await socket.send(message)
        while self._waiting:
            await socket.send(self._waiting[0])
            self._waiting.popleft()
        if conversation.over:  # hung up meanwhile
            await socket.close()
            raise CallLost(conversation.over, NORMAL)
        conversation.session, self._socket = hello["session"], socket
        return Reconnected(resumed, back.get("after") is None, hello)


async def _resumption(socket: ClientConnection) -> Raw:
    """Return the event that names the place at which the conversation continues."""
    while True:
        event: Raw = json.loads(await socket.recv())
        if event["type"] == "rejoinder.resumed":
            return event
