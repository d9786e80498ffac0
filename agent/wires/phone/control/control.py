"""The control of one telephone call, by its carrier's REST interface and by the marks of its audio."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.control import CallControl, cannot
from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.wires.phone.control.api import RING_S, CarrierApi, Dialled, HttpRequest, Rooms

if TYPE_CHECKING:
    from rejoinder.agent.wires.phone.control.client import CarrierClient

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Interval between two requests for the state of a call to a third person, in seconds."""
NOT_ANSWERED = "Nobody answered there. The caller is still with you: offer something else."
"""What the model reads after a warm transfer to someone who did not answer."""


class PhoneControl(CallControl):
    """The control of one telephone call.

    api: the carrier's REST interface. client: None where the carrier has none, or no credentials are set.
    unplayed: returns whether the carrier has audio that it has not played. spoken: speaks a text; returns the
    address of the audio, "" where the carrier could not fetch it.
    """

    def __init__(
        self,
        api: CarrierApi,
        client: CarrierClient | None,
        unplayed: Callable[[], bool],
        spoken: Callable[[str], Awaitable[str]],
    ) -> None:
        self._api = api
        self._spoken = spoken
        self._client = client
        self._unplayed = unplayed
        self._located = False

    @property
    def playing(self) -> bool:
        """Whether marks are out: their audio is not played yet."""
        return self._unplayed()

    @property
    def tones(self) -> bool:
        """Whether the carrier has no command for digits."""
        return self._api.tones

    async def hang_up(self) -> None:
        """End the caller's call. Raises ToolError. Cancelling may leave it open."""
        await self._ask(self._api.hang_up)

    async def transfer(self, to: str, briefing: str = "") -> None:
        """Connect the caller with ``to``. Raises ToolError.

        Cancelling ends the call to the third person, if that has not become the caller's.
        """
        if briefing and self._api.plays and not (briefing := await self._spoken(briefing)):
            raise cannot("announce a transfer", "The server's public address is unknown: see public_url.")
        if briefing and self._api.rooms:
            await self._announce(self._api.rooms, to, briefing)
        else:
            await self._ask(lambda: self._api.transfer(to, briefing))

    async def send_digits(self, digits: str) -> None:
        """Press keys. Raises ToolError. Cancelling may leave them pressed."""
        await self._ask(lambda: self._api.send_digits(digits))

    async def hold(self) -> None:
        """Play music to the caller, where the carrier can. Raises ToolError. Cancelling may leave it on."""
        await self._ask(self._api.hold)

    async def resume(self) -> None:
        """Stop the music. Raises ToolError. Cancelling may leave it on."""
        await self._ask(self._api.resume)

    async def _announce(self, rooms: Rooms, to: str, briefing: str) -> None:
        """Call a person, tell them, and bring the caller in once they have answered."""
        room = f"transfer-{secrets.token_hex(8)}"
        id = rooms.dialled(await self._send(rooms.dial(to, briefing, room)) or {})
        try:
            async with asyncio.timeout(RING_S):
                await self._answered(rooms, id)
            await self._send(rooms.join(room))
        except BaseException as error:
            dropping = asyncio.ensure_future(self._drop(rooms, id))
            await asyncio.shield(dropping)
            if isinstance(error, TimeoutError):
                raise ToolError(NOT_ANSWERED) from None
            raise

    async def _answered(self, rooms: Rooms, id: str) -> None:
        while True:
            match rooms.state(await self._send(rooms.look(id)) or {}):
                case Dialled.ANSWERED:
                    return
                case Dialled.FAILED:
                    raise ToolError(NOT_ANSWERED)
            await asyncio.sleep(LOOK_S)

    async def _drop(self, rooms: Rooms, id: str) -> None:
        try:
            await self._send(rooms.drop(id))
        except ToolError as error:
            log.warning("the call to a third person was not ended: %s", error)

    async def _ask(self, make: Callable[[], HttpRequest | None]) -> None:
        if self._client is not None and not self._located:
            if first := self._api.locate():
                self._api.located(await self._send(first))
            self._located = True
        if request := make():
            await self._send(request)

    async def _send(self, request: HttpRequest) -> Any:
        if self._client is None:
            raise ToolError(f"{self._api.name} cannot be asked: its credentials are not set.")
        return await self._client.send(self._api.name, request)
