"""One call: a WebSocket, a session, and the protocol object between them."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from io import RawIOBase

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rejoinder.agent.commands import (
    AddItem,
    AddRecording,
    AddText,
    Command,
    Configure,
    EndTurn,
    Forget,
    Hear,
    Interrupt,
    Remove,
    Respond,
    Truncate,
)
from rejoinder.agent.connection import LAST
from rejoinder.agent.realtime import Realtime
from rejoinder.agent.realtime_events import ServerEvent, failure
from rejoinder.pipeline import (
    RATE,
    CallOver,
    Models,
    Options,
    Overloaded,
    PipelineError,
    ProtocolError,
    Session,
    TurnTraced,
    open_session,
)
from rejoinder.pipeline.errors import first_error

log = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""A client whose socket stays full for so long is hung up on."""
STILL_SECONDS = 0.12
"""So long nothing is read after a silent frame: to wake up for each is what an idle call costs."""
NORMAL, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1008, 1011


class Call:
    """Carry messages between a client and its session, in both directions at once."""

    def __init__(
        self, websocket: WebSocket, models: Models, options: Options, wire: Realtime, traces: RawIOBase | None
    ) -> None:
        self._websocket = websocket
        self._models = models
        self._options = options
        self._wire = wire
        self._traces = traces
        self._writing = asyncio.Lock()

    async def run(self) -> tuple[int, str]:
        """Hold the conversation until one side ends it; return a close code (0: closed already) and a reason.

        This is the session boundary: whatever fails ends this call, with a reason, and no other. Cancelling
        ends the call and everything it started.
        """
        try:
            async with open_session(self._models, self._options) as session:
                await self._send(self._wire.open())
                async with asyncio.TaskGroup() as tasks:
                    telling = tasks.create_task(self._tell(session))
                    await self._read(session)
                    telling.cancel()
        except Exception as error:
            match cause := first_error(error):
                case WebSocketDisconnect():
                    pass
                case CallOver():
                    log.info("call ended: %s", cause)
                    return NORMAL, str(cause)
                case Overloaded():
                    log.warning("call ended: %s", cause)
                    return POLICY_VIOLATION, str(cause)
                case PipelineError():
                    log.warning("call ended: %s", cause)
                    return INTERNAL_ERROR, str(cause)
                case _:
                    log.error("call failed", exc_info=error)
                    return INTERNAL_ERROR, "internal error"
        return 0, ""

    async def hang_up(self, code: int, reason: str) -> None:
        """Close the socket; one that takes nothing any more is given up on."""
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
            async with asyncio.timeout(1.0):
                await self._websocket.close(code, reason[:120])

    async def _read(self, session: Session) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                error = ProtocolError(
                    "send JSON in text messages; audio goes inside it as base64", "invalid_json"
                )
                await self._send([failure(error, None)])
                continue
            answer = None
            for answer in self._wire.receive(text):
                if isinstance(answer, dict):
                    await self._send([answer])
                else:
                    await self._obey(session, answer)
            if isinstance(answer, Hear) and message.get(LAST):
                await asyncio.sleep(0)  # voice activity hears it first
                if session.still:
                    await asyncio.sleep(STILL_SECONDS)

    async def _obey(self, session: Session, command: Command) -> None:
        """Let the session do what the client asked for; waits while a second of its audio is unheard."""
        match command:
            case Hear(pcm):
                await session.hear(pcm)
            case EndTurn():
                await session.end_user_turn()
            case Forget():
                session.clear_audio()
            case AddText(role, text):
                session.add_text(text, role)
            case AddItem(entry, after):
                session.insert(entry, after)
            case AddRecording():
                await self._transcribe(session, command)
            case Remove(key):
                session.remove(key)
            case Respond(asked):
                session.respond(asked)
            case Interrupt(aside):
                session.interrupt(aside)
            case Truncate(turn, seconds):
                if (heard := session.truncate(turn, seconds)) is not None:
                    self._wire.heard(turn, heard)
            case Configure(options):
                session.configure(options)

    async def _transcribe(self, session: Session, given: AddRecording) -> None:
        """Find the words of a recording; what the client wants next may build on them, and waits."""
        seconds, text, cause = len(given.pcm) / 2 / RATE, "", ""
        try:
            text = await session.insert_audio(given.pcm, given.key, given.after)
        except PipelineError as error:
            log.warning("an item's audio was not transcribed: %s", error)
            cause = str(error)
        await self._send(given.told(text, seconds, cause))

    async def _tell(self, session: Session) -> None:
        async for happened in session.events:
            if isinstance(happened, TurnTraced) and self._traces is not None:
                try:
                    self._traces.write(f"{happened.trace.to_json()}\n".encode())
                except (OSError, ValueError) as error:  # full, or closed: no reason to hang up
                    log.warning("cannot write the trace: %s", error)
            if events := self._wire.tell(happened):
                await self._send(events)

    async def _send(self, events: list[ServerEvent]) -> None:
        """Write events in order. Raises Overloaded when the socket takes nothing for ``SEND_SECONDS``."""
        async with self._writing:
            for event in events:
                if self._websocket.application_state is not WebSocketState.CONNECTED:
                    return
                try:
                    async with asyncio.timeout(SEND_SECONDS):
                        await self._websocket.send_text(json.dumps(event))
                except TimeoutError:
                    raise Overloaded(f"the client has not read for {SEND_SECONDS:g} s") from None
                except RuntimeError as error:  # Starlette's word for a socket that is closed already
                    raise WebSocketDisconnect(reason=str(error)) from None
