"""uvicorn's connections, mended where they leave a client without a reason, or a socket behind.

What a server must see to itself, because TCP does not: the close frame has to reach a client that is still
sending (closing a socket with unread bytes in it resets the connection, and the frame is lost), and a socket
whose client takes nothing any more has to be dropped instead of flushed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from rejoinder.agent.logs import one_line
from rejoinder.agent.server.frames import Portions
from rejoinder.agent.server.request_head import BAD_REQUEST, Refused, answer
from rejoinder.agent.wires.call_log import refused as log_refused
from rejoinder.agent.wires.long_messages import MAX_BINARY, MAX_WHOLE, Long
from rejoinder.agent.wires.socket import ABNORMAL, ALIVE, BEHIND, CUT

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

log = logging.getLogger(__name__)

LINGER_SECONDS = 3.0
"""How long a client may take to answer a close frame; uvicorn waits as long for calls when it shuts down."""
GOODBYE_SECONDS = 1.0
SWITCHING_PROTOCOLS = 101
SERVICE_RESTART = 1012
NOT_TEXT = 1007
REASON_BYTES = 123
"""What a close frame has room for behind its code (RFC 6455, 5.5)."""
LONG = 2**16
"""Characters of a message that may take longer to hear than a client waits for an answer to its ping."""
WAITING = 32
"""Messages that may wait for the application before more of what has come is looked at."""


def fitting(reason: str) -> str:
    """Return a reason as a close frame can say it: in whole characters of UTF-8, no longer than it may be."""
    return reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")


def dismiss(transport: asyncio.Transport, refused: Refused, said: bytes) -> asyncio.TimerHandle:
    """Send the last bytes of a connection whose request is refused; return the timer that drops it.

    What the client still sends has to be read meanwhile: see above.
    """
    log.warning("a request was refused (%d): %s", refused.status, one_line(str(refused)))
    transport.write(said)
    if transport.can_write_eof():
        transport.write_eof()
    return asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)


def is_long(message: Mapping[str, Any]) -> bool:
    """Tell whether a message may take long to be heard."""
    return CUT in message or len(str(message.get("text"))) > LONG


def up_to_the_end(
    messages: Sequence[ASGIReceiveEvent],
) -> tuple[list[ASGIReceiveEvent], list[ASGIReceiveEvent]]:
    """Return what was received before a socket closed, and the rest in order: it tells why."""
    received = list(takewhile(lambda one: one["type"] == "websocket.receive", messages))
    return received, list(messages[len(received) :])


class Connection(WebSocketsSansIOProtocol):
    """One WebSocket. Whatever ends it, the client is told why if it listens, and the socket is gone soon."""

    _giving_up: asyncio.TimerHandle | None = None
    _long = False
    _going = False
    _cut: Long | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the request that was read already."""
        super().connection_made(transport)
        self._came = Portions(self.config.ws_max_size)
        self._message = bytearray()

    def ensure_taken(self) -> None:
        """Refuse a handshake that this parser has not taken, and does not answer by itself."""
        if self.handshake_initiated:
            return
        refused = Refused(BAD_REQUEST, f"the handshake is malformed: {self.conn.handshake_exc}")
        self.handshake_complete = self.close_sent = True
        self.close_timer = dismiss(self.transport, refused, answer(refused))

    def handle_connect(self, event: Request) -> None:
        """Begin a call, or refuse a request that asks for none."""
        super().handle_connect(event)
        if self.response.status_code != SWITCHING_PROTOCOLS:
            reason = bytes(self.response.body or b"").decode().partition("\n")[0]
            log.warning("a request was refused (%d): %s", self.response.status_code, one_line(reason))
            return
        # Frames may not come before the handshake is over, and the parser cannot take them.
        self.read_paused = True
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes; whatever they say, somebody is there."""
        if not self.handshake_initiated:
            super().data_received(data)
            return
        if self.handshake_complete:
            cast("dict[str, Any]", self.scope)[ALIVE] = self.loop.time()
        self._came.add(data)
        if not self._going:
            self._go_on()

    def _go_on(self) -> None:
        """Take a portion of what has come; the next one has a turn of the loop of its own.

        It waits while there are many messages that the application has not asked for.
        """
        self._going = False
        full = self.queue.qsize() >= WAITING and not self.close_sent
        if self.disconnected or full or not self.handshake_complete:
            return
        super().data_received(self._came.take())
        if self._came.waiting:
            self.transport.pause_reading()
            self._wake()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _wake(self) -> None:
        """Go on with what has come, else with reading."""
        if not self._came.waiting:
            self.transport.resume_reading()
        elif not self._going:
            self._going = True
            self.loop.call_soon(self._go_on)

    def handle_text(self, event: Frame) -> None:
        """Begin a text message."""
        self._begin("text", event)

    def handle_bytes(self, event: Frame) -> None:
        """Begin a binary message."""
        self._begin("bytes", event)

    def handle_cont(self, event: Frame) -> None:
        """Take the next fragment of a message; of one that gets long, what is to be kept of it."""
        self._message += event.data
        most = MAX_WHOLE if self.curr_msg_data_type == "text" else MAX_BINARY
        if self._cut is None and len(self._message) > most:
            self._cut = Long(self.curr_msg_data_type == "bytes")
        if self._cut is not None:
            self._cut.feed(self._message)
            self._message.clear()
        if event.fin:
            self.send_receive_event_to_app()

    def _begin(self, kind: Literal["text", "bytes"], event: Frame) -> None:
        self.curr_msg_data_type, self._cut = kind, None
        self._message.clear()
        self.handle_cont(event)

    async def run_asgi(self) -> None:
        """Run the application, then give the client a moment to close too."""
        await super().run_asgi()
        self._give_up_in(LINGER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is gone, and whether the client had said goodbye."""
        if self.handshake_complete and self.conn.close_rcvd is None:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": ABNORMAL})
        super().connection_lost(exc)
        if self._giving_up is not None:
            self._giving_up.cancel()

    async def send(self, message: ASGISendEvent) -> None:
        """Pass on what the application sends; the reason of a close may quote the client, and has to fit."""
        if message["type"] == "websocket.close":
            message = {**message, "reason": fitting(message.get("reason") or "")}
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._read_on()
        if message["type"] == "websocket.close" and self._came.waiting:
            self._wake()  # the client's own close may be in there
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # by a refusal; else uvicorn would log that there was no answer
            reason = message.get("body", b"").decode(errors="replace").strip()
            log_refused(self.scope["path"], self.scope["client"], reason)

    async def receive(self) -> ASGIReceiveEvent:
        """Hand over the next message; behind it nothing is read before the next is asked for.

        So an application that asks seldom takes what has come meanwhile at once. Behind a long message, which
        may be minutes of audio, reading goes on: pings and a close must not wait for it to be heard.
        """
        self._read_on()
        message = cast("dict[str, Any]", await self.queue.get())
        message[BEHIND] = self._behind
        self._long = is_long(message)
        if self._long:
            self._read_on()
        return cast("ASGIReceiveEvent", message)

    def _behind(self) -> list[ASGIReceiveEvent]:
        waiting = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        behind, rest = up_to_the_end(waiting)
        for one in rest:  # Starlette has to see by itself that the socket is closed
            self.queue.put_nowait(one)
        if self._long or any(map(is_long, behind)):
            self._read_on()
        return behind

    def _read_on(self) -> None:
        if self.read_paused and self.queue.empty() and self.handshake_complete:
            self.read_paused = False
            self._wake()

    def send_receive_event_to_app(self) -> None:
        """Hand a whole message to the application; text that is none ends the connection."""
        if self.close_sent:
            return
        message: dict[str, Any] = {"type": "websocket.receive"}
        try:
            if self._cut is not None:
                self._cut.end()
                message |= {"text": "", CUT: self._cut}
                self._cut = None
            elif self.curr_msg_data_type == "text":
                message["text"] = self._message.decode()
            else:
                message["bytes"] = bytes(self._message)
        except UnicodeDecodeError as error:
            self.conn.fail(NOT_TEXT, f"not UTF-8: {error.reason}")
            self.handle_parser_exception()
            return
        self.queue.put_nowait(cast("ASGIReceiveEvent", message))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

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
            self._wake()

    def _give_up_in(self, seconds: float) -> None:
        """Drop the socket then, whatever is still to be written to it."""
        if not self.disconnected and self._giving_up is None:
            self._giving_up = self.loop.call_later(seconds, self.transport.abort)
