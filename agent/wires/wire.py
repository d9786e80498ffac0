"""The interface of all wire protocols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from websockets.frames import CloseCode

from rejoinder.agent.wires.commands import Command, Result
from rejoinder.agent.wires.transport import Frame, Message
from rejoinder.pipeline import Event, Options

Answers = Sequence[Command | Message]
"""What follows from an input of a wire: commands to the session and messages to the client, in order."""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The end of a call by the server: the close code and the reason of its socket, and the last messages."""

    reason: str
    code: int = CloseCode.NORMAL_CLOSURE
    messages: Sequence[Message] = ()


class Wire(Protocol):
    """The server's side of a protocol for one connection. It does no I/O.

    Each method takes one input and returns the finished list of what follows from it. Carry out a list before
    the next message of the client; the result of a command comes back through ``handle``.
    """

    @property
    def name(self) -> str:
        """The name of the protocol, or of the carrier whose dialect this is."""

    @property
    def id(self) -> str:
        """The client's identifier of the call, "" where it has none."""

    @property
    def flush_after(self) -> float | None:
        """Seconds without a session event after which ``flush`` is called; None for never."""

    @property
    def playing(self) -> bool:
        """Whether the client still plays audio, as far as it reports that."""

    def adopt(self, options: Options) -> None:
        """Replace the options of the session, before it begins and before the client has changed any."""

    def open(self) -> Answers:
        """Return what begins the call."""

    def receive(self, frame: Frame, more: bool = False) -> Answers:
        """Take one message of the client. Raises ProtocolError.

        more: whether the next message is here already; audio may then be held back until that one is taken.
        """

    def read_more(self) -> Answers:
        """Take the next piece of the client's message, after a ``ReadMore``."""

    def handle(self, event: Event | Result) -> Answers:
        """Take a session event, or the result of a command."""

    def flush(self) -> Answers:
        """Return messages that were held back for more audio."""

    def goodbye(self, reason: str, code: str) -> Goodbye:
        """Return the end of a call that has reached a limit, or is stuck. code: of the error, for clients."""
