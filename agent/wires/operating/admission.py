"""Which connections and requests the ports without HTTP take: those of AudioSocket and Wyoming."""

from __future__ import annotations

from typing import Protocol

from rejoinder.agent.wires.call_log import Address


class Admission(Protocol):
    """Decides about connections and requests by the client's address. Both ports have no keys."""

    async def begin(self, client: Address) -> str:
        """Count a connection until ``end``, or return why it is refused. A refused one does not count.

        Cancelling counts nothing.
        """

    def end(self, client: Address) -> None:
        """Stop counting a connection."""

    async def ask(self, client: Address) -> str:
        """Count a call or request of a connection, or return why it is refused. That does not count.

        Cancelling counts nothing.
        """
