"""What a call needs of its client's connection, which may be several sockets, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rejoinder.agent.wires.call_log import Address
from rejoinder.agent.wires.transport import Disconnected, Frame, Message


@dataclass(frozen=True, slots=True)
class Lost:
    """The client's connection broke off, and the client may come back.

    end: how it broke off. since: the loop time at which the client last sent anything. reason: for the log,
    "" if another connection took over. seconds: longest wait for the client. empty: whether there is nothing
    to come back for.
    """

    end: Disconnected
    since: float
    reason: str
    seconds: float
    empty: bool


@dataclass(frozen=True, slots=True)
class ClientAway:
    """The client is away, for ``seconds`` since the last notice, and has sent no audio."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """The client is back.

    catch_up: sends what the client missed, before anything else. It takes the reply that was audible last and
    the seconds of it that were heard, and a function that it calls before it sends: with the seconds at the
    end of each reply that the client receives again. Cancelling may leave messages unsent.
    """

    client: Address
    catch_up: Callable[[tuple[int, float] | None, Callable[[Mapping[int, float]], None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Gone:
    """The client has not come back in time. reason: for the log and for watchers."""

    reason: str


ConnectionChange = Lost | ClientAway | Resumed | Gone


class CallSocket(Protocol):
    """The connection of a call."""

    async def receive(self) -> list[Frame] | Disconnected | ConnectionChange:
        """Return the next frames, or a change of the connection. Cancelling loses no frame."""

    async def send(self, messages: Sequence[Message]) -> None:
        """Send messages in order, with no others between them. Cancelling may leave some unsent.

        Raises Overloaded if the client does not read, and Unsent.
        """
