"""What a line can do for a call beside carrying audio: hang up, transfer, send digits, play music."""

from __future__ import annotations

from typing import Protocol

from rejoinder.agent.app.tool import ToolError


def cannot(act: str, advice: str = "") -> ToolError:
    """Return the error for what a line cannot do. act: such as "transfer calls". advice: what may be done."""
    return ToolError(f"This line cannot {act}." + (f" {advice}" if advice else ""))


class CallControl(Protocol):
    """The control of one line. What a line does not override, it cannot do.

    All methods raise ToolError, with a reason for the language model, where the line cannot do it or the
    carrier does not. Cancelling stops waiting for the carrier, which may have acted already.
    """

    @property
    def playing(self) -> bool:
        """Whether the caller has not heard all audio that was sent, as far as the line reports it."""
        return False

    @property
    def tones(self) -> bool:
        """Whether digits are sent as tones in the agent's audio, because the line has no command for them."""
        return False

    async def hang_up(self) -> None:
        """End the caller's call. The end of the connection follows, which is enough on most lines.

        Cancelling may leave the call open.
        """
        return

    async def transfer(self, to: str, briefing: str = "") -> None:
        """Connect the caller with ``to``, a number or an address that the carrier knows.

        briefing: what the person who answers hears before the caller, "" for a blind transfer. The agent's
        part of the call is over then. Cancelling ends the call to whom it was to go.
        """
        raise cannot("transfer calls")

    async def send_digits(self, digits: str) -> None:
        """Press keys: characters of 0123456789*#ABCD. Cancelling may leave them pressed."""
        raise cannot("send digits")

    async def hold(self) -> None:
        """Play music to the caller, where the carrier can. The agent is silent and deaf in any case.

        Cancelling may leave the music on.
        """
        return

    async def resume(self) -> None:
        """Stop the music. Cancelling may leave it on."""
        return


class NoControl(CallControl):
    """A line that only carries audio: it ends with its connection."""
