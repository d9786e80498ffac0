"""The end of a call that the server decides: the agent says goodbye, and the call is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.websockets import WebSocketDisconnect

from rejoinder.agent.wires.socket import CallSocket
from rejoinder.agent.wires.wire import Wire
from rejoinder.pipeline import CallOver, Overloaded, ReplyRequest, Session

SHUTTING_DOWN = "the server is shutting down"
"""Reason of a call that ends with the server."""
SERVICE_RESTART = 1012
"""Close code: the server ends."""
LAST_WORDS_SECONDS = 10.0
"""Longest time for a goodbye, in seconds. A caller who talks on is cut off then."""
HEARD_SECONDS = 0.05
"""Interval between two checks whether the goodbye has been heard, in seconds."""
CLIENT_BUFFER_SECONDS = 0.3
"""Audio that a client may still have to play when all of it has been sent, in seconds."""


async def depart(
    session: Session, words: str, playing: Callable[[], bool], reason: str = SHUTTING_DOWN
) -> None:
    """Say the last words of a call, then raise CallOver. Cancelling says nothing more.

    words: "" for none. playing: whether the line has not played all audio yet. The words replace a reply of
    the agent, and wait for the end of the user's turn.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_SECONDS):
            if words:
                session.respond(ReplyRequest(words=words))
                while not session.at_rest or playing():  # noqa: ASYNC110 - play-out has no event
                    await asyncio.sleep(HEARD_SECONDS)
                await asyncio.sleep(CLIENT_BUFFER_SECONDS)
    raise CallOver(reason)


class Departure:
    """The end of a running call. wire: its protocol."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._running: tuple[asyncio.TaskGroup, Session] | None = None

    @contextmanager
    def possible(self, tasks: asyncio.TaskGroup, session: Session) -> Iterator[None]:
        """Let the call be ended during the block. tasks: of the call."""
        self._running = tasks, session
        try:
            yield
        finally:
            self._running = None

    def begin(self, words: str, reason: str = SHUTTING_DOWN) -> None:
        """End the call, unless it ends already or has not begun. words: spoken first, "" for none."""
        if self._running is None:
            return
        (tasks, session), self._running = self._running, None
        tasks.create_task(depart(session, words, self._playing, reason), name="departure")

    def _playing(self) -> bool:
        return bool(getattr(self._wire, "playing", False))


async def say_goodbye(socket: CallSocket, wire: Wire, reason: str) -> tuple[int, str]:
    """Send the last messages of a call that the server ends; return the close code and the reason.

    Cancelling may leave some unsent.
    """
    goodbye = wire.goodbye(reason)
    try:
        await socket.send(goodbye.messages)
    except (Overloaded, WebSocketDisconnect):
        return 0, ""
    return SERVICE_RESTART if reason == SHUTTING_DOWN else goodbye.code, goodbye.reason
