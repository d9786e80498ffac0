"""uvicorn's WebSocket connections, extended so that clients get a close reason and no socket stays open.

TCP leaves two tasks to the server. The close frame must reach a client that is still sending: closing a
socket with unread bytes resets the connection, and the frame is lost. And a socket whose client no longer
reads must be dropped instead of flushed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.frames import Frame as RawFrame
from websockets.http11 import Request

from rejoinder.agent.logs import one_line
from rejoinder.agent.server.frames import Portions
from rejoinder.agent.server.request_head import BAD_REQUEST, BadHead, answer
from rejoinder.agent.wires.call_log import log_refused
from rejoinder.agent.wires.failures import SHUTTING_DOWN
from rejoinder.agent.wires.long_messages import MAX_BINARY, MAX_WHOLE, Long
from rejoinder.agent.wires.transport import ALIVE, FRAMES, Frame

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

log = logging.getLogger(__name__)

CLOSE_ANSWER_SECONDS = 3.0
"""Longest wait for the answer to a close frame, in seconds. On shutdown uvicorn waits as long for calls."""
GOODBYE_SECONDS = 1.0
"""Longest wait for the answer to a close frame when the server ends, in seconds."""
REASON_BYTES = 123
"""Most bytes of the reason in a close frame (RFC 6455, 5.5)."""
LONG_MESSAGE = 2**16
"""Characters from which a message is long: processing it may take longer than a client waits for a pong."""
MOST_WAITING_MESSAGES = 32
"""Most messages that wait for the application before parsing pauses."""


def fitting(reason: str) -> str:
    """Return a reason cut to the size of a close frame, in complete UTF-8 characters."""
    return reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")


def dismiss(transport: asyncio.Transport, bad: BadHead, said: bytes) -> asyncio.TimerHandle:
    """Send the last bytes of a connection whose request is refused; return the timer that drops it.

    The caller must keep reading until then, so that the client receives the bytes.
    """
    log.warning("a request was refused (%d): %s", bad.status, one_line(str(bad)))
    transport.write(said)
    if transport.can_write_eof():
        transport.write_eof()
    return asyncio.get_running_loop().call_later(CLOSE_ANSWER_SECONDS, transport.abort)


def is_long(frame: Frame) -> bool:
    """Return whether a frame may take long to process."""
    return isinstance(frame, Long) or (isinstance(frame, str) and len(frame) > LONG_MESSAGE)


def up_to_the_end(
    messages: Sequence[ASGIReceiveEvent],
) -> tuple[list[ASGIReceiveEvent], list[ASGIReceiveEvent]]:
    """Return the messages received before the socket closed, and the rest, which has the close code."""
    received = list(takewhile(lambda one: one["type"] == "websocket.receive", messages))
    return received, list(messages[len(received) :])


class SocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket. However it ends, a client that reads gets the reason, and the socket closes soon."""

    _giving_up: asyncio.TimerHandle | None = None
    _long = False
    _going = False
    _cut: Long | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the handshake that ``HttpConnection`` has read."""
        super().connection_made(transport)
        self._came = Portions(self.config.ws_max_size)
        self._message = bytearray()

    def ensure_taken(self) -> None:
        """Refuse a handshake that the parser has neither accepted nor answered."""
        if self.handshake_initiated:
            return
        bad = BadHead(BAD_REQUEST, f"the handshake is malformed: {self.conn.handshake_exc}")
        self.handshake_complete = self.close_sent = True
        self.close_timer = dismiss(self.transport, bad, answer(bad))

    def handle_connect(self, event: Request) -> None:
        """Begin the call of a valid handshake; log one that the parser refuses."""
        super().handle_connect(event)
        if self.response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            reason = bytes(self.response.body or b"").decode().partition("\n")[0]
            log.warning("a request was refused (%d): %s", self.response.status_code, one_line(reason))
            return
        # The parser cannot take frames before the handshake is over, and clients must not send any.
        self.read_paused = True
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and note that the client is alive."""
        if not self.handshake_initiated:
            super().data_received(data)
            return
        if self.handshake_complete:
            cast("dict[str, Any]", self.scope)[ALIVE] = self.loop.time()
        self._came.add(data)
        if not self._going:
            self._go_on()

    def _go_on(self) -> None:
        """Parse one portion of the received bytes. Each portion gets its own turn of the event loop.

        Pauses while ``MOST_WAITING_MESSAGES`` messages wait for the application.
        """
        self._going = False
        full = self.queue.qsize() >= MOST_WAITING_MESSAGES and not self.close_sent
        if self.disconnected or full or not self.handshake_complete:
            return
        super().data_received(self._came.take())
        if self._came.waiting:
            self.transport.pause_reading()
            self._wake()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _wake(self) -> None:
        """Continue with the received bytes; without any, continue reading."""
        if not self._came.waiting:
            self.transport.resume_reading()
        elif not self._going:
            self._going = True
            self.loop.call_soon(self._go_on)

    def handle_text(self, event: RawFrame) -> None:
        """Begin a text message."""
        self._begin("text", event)

    def handle_bytes(self, event: RawFrame) -> None:
        """Begin a binary message."""
        self._begin("bytes", event)

    def handle_cont(self, event: RawFrame) -> None:
        """Take the next fragment of a message. A long message becomes a ``Long``, which keeps part of it."""
        self._message += event.data
        most = MAX_WHOLE if self.curr_msg_data_type == "text" else MAX_BINARY
        if self._cut is None and len(self._message) > most:
            self._cut = Long(self.curr_msg_data_type == "bytes")
        if self._cut is not None:
            self._cut.feed(self._message)
            self._message.clear()
        if event.fin:
            self.send_receive_event_to_app()

    def _begin(self, kind: Literal["text", "bytes"], event: RawFrame) -> None:
        self.curr_msg_data_type, self._cut = kind, None
        self._message.clear()
        self.handle_cont(event)

    async def run_asgi(self) -> None:
        """Run the application, then give the client ``CLOSE_ANSWER_SECONDS`` to close.

        Cancelling ends the application.
        """
        await super().run_asgi()
        self._give_up_in(CLOSE_ANSWER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the socket to the application, with 1006 if there was no close frame."""
        if self.handshake_complete and self.conn.close_rcvd is None:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE})
        super().connection_lost(exc)
        if self._giving_up is not None:
            self._giving_up.cancel()

    async def send(self, message: ASGISendEvent) -> None:
        """Pass on what the application sends. Cancelling may leave it unsent."""
        if message["type"] == "websocket.close":
            # The reason may quote the client, so it may be too long.
            message = {**message, "reason": fitting(message.get("reason") or "")}
        if message["type"] == "websocket.http.response.start":  # uvicorn leaves these out here
            message = {**message, "headers": [*message["headers"], *self.config.encoded_headers]}
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._read_on()
        if message["type"] == "websocket.close" and self._came.waiting:
            self._wake()  # the received bytes may contain the client's close frame
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # it was refused; else uvicorn logs that there was no answer
            reason = message.get("body", b"").decode(errors="replace").strip()
            log_refused(self.scope["path"], self.scope["client"], reason)

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message, with the frames of all that have come. Cancelling loses none.

        Reading pauses until the next call, so an application that calls rarely takes more at once. After a
        long frame, which may be minutes of audio, reading goes on, so that pings and close frames do not wait
        for its processing.
        """
        self._read_on()
        message = cast("dict[str, Any]", await self.queue.get())
        frames: list[Frame] = message.setdefault(FRAMES, [])
        waiting = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        behind, rest = up_to_the_end(waiting)
        for one in behind:
            frames += cast("dict[str, Any]", one)[FRAMES]
        for one in rest:  # Starlette must receive the close itself
            self.queue.put_nowait(one)
        self._long = any(map(is_long, frames))
        if self._long:
            self._read_on()
        return cast("ASGIReceiveEvent", message)

    def _read_on(self) -> None:
        if self.read_paused and self.queue.empty() and self.handshake_complete:
            self.read_paused = False
            self._wake()

    def send_receive_event_to_app(self) -> None:
        """Pass a complete message to the application. Text that is not UTF-8 ends the connection."""
        if self.close_sent:
            return
        message: dict[str, Any] = {"type": "websocket.receive"}
        try:
            if self._cut is not None:
                self._cut.end()
                message |= {"text": "", FRAMES: [self._cut]}
                self._cut = None
            elif self.curr_msg_data_type == "text":
                message |= {"text": (text := self._message.decode()), FRAMES: [text]}
            else:
                message |= {"bytes": (data := bytes(self._message)), FRAMES: [data]}
        except UnicodeDecodeError as error:
            self.conn.fail(CloseCode.INVALID_DATA, f"not UTF-8: {error.reason}")
            self.handle_parser_exception()
            return
        self.queue.put_nowait(cast("ASGIReceiveEvent", message))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_parser_exception(self) -> None:
        """Send the client the error, and discard its further bytes so that the close frame arrives."""
        if self.close_sent:  # the client has the error and still sends
            return
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self._say_goodbye(CLOSE_ANSWER_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def shutdown(self) -> None:
        """End the call because the server ends, with a close code and a reason."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            self._give_up_in(GOODBYE_SECONDS)
            return
        if self.conn.close_rcvd is not None:  # the client has ended it: the last bytes are on their way
            self._give_up_in(GOODBYE_SECONDS)
            return
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": CloseCode.SERVICE_RESTART, "reason": SHUTTING_DOWN}
        )
        self.conn.send_close(CloseCode.SERVICE_RESTART, SHUTTING_DOWN)
        self._say_goodbye(GOODBYE_SECONDS)

    def _say_goodbye(self, seconds: float) -> None:
        """Send the last bytes of the protocol object. Everything that arrives from here on is discarded."""
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(seconds, self.transport.abort)
        if self.read_paused:
            self.read_paused = False
            self._wake()

    def _give_up_in(self, seconds: float) -> None:
        """Drop the socket after ``seconds``, even with unsent bytes."""
        if not self.disconnected and self._giving_up is None:
            self._giving_up = self.loop.call_later(seconds, self.transport.abort)
