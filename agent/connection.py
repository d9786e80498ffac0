"""uvicorn's WebSocket connection, mended where it leaves a client without a reason, or a socket behind.

What a server must see to itself, because TCP does not: the close frame has to reach a client that is still
sending (closing a socket with unread bytes in it resets the connection, and the frame is lost), and a socket
whose client takes nothing any more has to be dropped instead of flushed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent

LINGER_SECONDS = 3.0
"""How long a client may take to answer a close frame; uvicorn waits as long for calls when it shuts down."""
GOODBYE_SECONDS = 1.0
SERVICE_RESTART = 1012
NOT_TEXT = 1007
LAST = "rejoinder.last"
"""The key under which a message says whether no whole message that was read is left behind it."""
LONG = 2**16
"""Characters of a message that may take longer to hear than a client waits for an answer to its ping."""


class Connection(WebSocketsSansIOProtocol):
    """One WebSocket. Whatever ends it, the client is told why if it listens, and the socket is gone soon."""

    _giving_up: asyncio.TimerHandle | None = None

    async def run_asgi(self) -> None:
        """Run the application, then give the client a moment to close too."""
        await super().run_asgi()
        self._give_up_in(LINGER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is gone."""
        super().connection_lost(exc)
        if self._giving_up is not None:
            self._giving_up.cancel()

    async def receive(self) -> ASGIReceiveEvent:
        """Hand over the next message; behind it nothing is read before the next is asked for.

        So an application that asks seldom takes what has come meanwhile at once. Behind a long message, which
        may be minutes of audio, reading goes on: pings and a close must not wait for it to be heard.
        """
        self._read_on()
        message = await self.queue.get()
        last = self.queue.empty()
        if len(str(message.get("text"))) > LONG:
            self._read_on()
        return cast("ASGIReceiveEvent", {**message, LAST: last})

    def _read_on(self) -> None:
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    def send_receive_event_to_app(self) -> None:
        """Hand a whole message to the application; text that is none ends the connection."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError as error:
                self.frames = []
                self.conn.fail(NOT_TEXT, f"not UTF-8: {error.reason}")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Tell the client what it did wrong, and discard the rest of it so that it can read that."""
        if self.close_sent:  # it was told, and still sends
            return
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self._say_goodbye(LINGER_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def shutdown(self) -> None:
        """End the call because the server ends, with a reason."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            self._give_up_in(GOODBYE_SECONDS)
            return
        reason = "the server is shutting down"
        self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVICE_RESTART, "reason": reason})
        self.conn.send_close(SERVICE_RESTART, reason)
        self._say_goodbye(GOODBYE_SECONDS)

    def _say_goodbye(self, seconds: float) -> None:
        """Send what the protocol object has to say last; whatever arrives from here on is discarded."""
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(seconds, self.transport.abort)
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def _give_up_in(self, seconds: float) -> None:
        """Drop the socket then, whatever is still to be written to it."""
        if not self.disconnected and self._giving_up is None:
            self._giving_up = self.loop.call_later(seconds, self.transport.abort)
