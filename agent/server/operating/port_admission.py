"""Applies the limits per address, and the drain, to the ports without HTTP."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from rejoinder.agent.server.limiting.admission import CallAdmission
from rejoinder.agent.server.operating.addresses import grouped
from rejoinder.agent.server.operating.draining import Drain
from rejoinder.agent.wires.call_log import Address


class PortAdmission:
    """Decides about connections of AudioSocket and Wyoming, whose clients show no key.

    admission: counts each address, together with the other wires. exempt: networks that are not
    counted in it. drain: of the server.
    """

    def __init__(
        self, admission: CallAdmission, exempt: list[IPv4Network | IPv6Network], drain: Drain
    ) -> None:
        self._admission = admission
        self._exempt = exempt
        self._drain = drain

    async def begin(self, client: Address) -> str:
        """Count a connection until ``end``, or return why it is refused. A refused one does not count.

        Cancelling counts nothing.
        """
        if self._drain.reason:
            return self._drain.reason
        refused = await self._admission.connect(self._group(client))
        return refused.reason if refused else ""

    def end(self, client: Address) -> None:
        """Stop counting a connection."""
        self._admission.end("", self._group(client))

    async def ask(self, client: Address) -> str:
        """Count a call or request of a connection, or return why it is refused. That does not count.

        Cancelling counts nothing.
        """
        if self._drain.reason:
            return self._drain.reason
        refused = await self._admission.ask("", self._group(client))
        return refused.reason if refused else ""

    def _group(self, client: Address) -> str:
        return grouped(client[0], self._exempt) if client else ""
