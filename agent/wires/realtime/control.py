"""The control of a Realtime call: the client carries actions out, if it has said that it does."""

from __future__ import annotations

from rejoinder.agent.app.control import CallControl
from rejoinder.agent.wires.realtime.events import event
from rejoinder.agent.wires.socket import CallSocket


class ClientControl(CallControl):
    """The control of a client that has connected with ``actions=true``: it gets an event for each action.

    All methods raise Overloaded and WebSocketDisconnect. Cancelling may leave the event unsent.
    """

    def __init__(self, socket: CallSocket) -> None:
        self._socket = socket

    async def hang_up(self) -> None:
        """Send the action; the connection ends next. Cancelling may leave it unsent."""
        await self._act("hang_up")

    async def transfer(self, to: str, briefing: str = "") -> None:
        """Send the action; the connection ends next. Cancelling may leave it unsent."""
        await self._act("transfer", to=to, briefing=briefing)

    async def send_digits(self, digits: str) -> None:
        """Send the action. Cancelling may leave it unsent."""
        await self._act("send_digits", digits=digits)

    async def hold(self) -> None:
        """Send the action. Cancelling may leave it unsent."""
        await self._act("hold")

    async def resume(self) -> None:
        """Send the action. Cancelling may leave it unsent."""
        await self._act("resume")

    async def _act(self, action: str, **fields: str) -> None:
        await self._socket.send([event("rejoinder.call_action", action=action, **fields)])
