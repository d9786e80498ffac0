"""Call actions as tools: an agent that is to have one names it among its tools.

agent = Agent("You answer for Mario's.", tools=[hang_up, transfer_to({"kitchen": "+49301234567"})])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from pydantic import Field

from rejoinder.agent.app.call import Call, NotConnected
from rejoinder.agent.app.tool import Untold

Action = Callable[..., Awaitable[str]]
"""A tool."""


async def hang_up(call: Call[Any, Any]) -> str:
    """End the call. Say goodbye in the same answer: the call ends once the caller has heard it.

    Returns:
        What the model reads. It does not wait, so there is nothing to cancel.
    """
    call.hang_up()
    return "The call ends after your last words. Say nothing more."


async def send_digits(
    call: Call[Any, Any], digits: Annotated[str, Field(pattern=r"^[0-9*#A-D]{1,64}$")]
) -> str:
    """Press keys on the telephone, to answer a menu or a system that asks for digits.

    Args:
        digits: such as 1, or 4711#

    Returns:
        What the model reads. Cancelling before the agent has spoken presses none.
    """
    await call.send_digits(digits)
    return Untold(f"Pressed {digits}.")


async def hold(call: Call[Any, Any], seconds: Annotated[int, Field(ge=3, le=25)] = 15) -> str:
    """Put the caller on hold while other tools work. Say so in the same answer.

    Args:
        seconds: how long

    Returns:
        What the model reads. Cancelling takes the caller off hold.
    """
    await call.hold()
    try:
        await anyio.sleep(seconds)
    finally:
        with suppress(NotConnected):  # the caller has left
            await call.resume()
    return "The caller is back: thank them for holding."


def transfer_to(destinations: Mapping[str, str], warm: bool = False) -> Action:
    """Return the tool ``transfer``: it connects the caller with one of some people.

    destinations: a number, or an address that the carrier knows, by the name that the model uses. The model
    chooses a name and never a number, so a caller cannot talk it into calling another one.
    warm: whether the person who answers first hears what the model writes for them.

    Raises ValueError for no destinations.
    """
    if not destinations:
        raise ValueError("transfer_to needs at least one destination, such as {'sales': '+49301234567'}")
    names: Any = Literal.__getitem__(tuple(destinations))

    async def blind(call: Call[Any, Any], to: Any) -> str:
        """Connect the caller with someone else. Say so in the same answer."""
        await call.transfer(destinations[to])
        return "Transferred."

    async def announced(
        call: Call[Any, Any], to: Any, briefing: Annotated[str, Field(min_length=1, max_length=500)]
    ) -> str:
        """Connect the caller with someone else, who first hears your briefing. Say so in the same answer.

        Args:
            briefing: who calls and what they want, in two sentences; the caller does not hear it
        """
        await call.transfer(destinations[to], briefing)
        return "Transferred."

    made = announced if warm else blind
    made.__name__ = "transfer"
    made.__annotations__["to"] = names
    return made


def say_from(texts: Mapping[str, str]) -> Action:
    """Return the tool ``say``: the agent speaks one of some texts, word for word.

    texts: exact words, such as a legal notice, by the name that the model uses. Raises ValueError for no
    texts, or an empty one.
    """
    if not texts or not all(words.strip() for words in texts.values()):
        raise ValueError(
            "say_from needs at least one text with words, such as {'notice': 'We record calls.'}"
        )
    names: Any = Literal.__getitem__(tuple(texts))

    async def say(call: Call[Any, Any], text: Any) -> str:
        """Speak a prepared text, word for word. Do not say it yourself."""
        call.say(texts[text])
        return Untold(f"You have said: {texts[text]}")

    say.__annotations__["text"] = names
    return say


def play_from(recordings: Mapping[str, str | Path]) -> Action:
    """Return the tool ``play``: it plays one of some audio files to the caller.

    recordings: the files, by the name that the model uses. Raises ValueError for no recordings.
    """
    if not recordings:
        raise ValueError("play_from needs at least one recording, such as {'jingle': 'jingle.wav'}")
    names: Any = Literal.__getitem__(tuple(recordings))

    async def play(call: Call[Any, Any], recording: Any) -> str:
        """Play a recording to the caller."""
        await call.play(recordings[recording])
        return Untold("It plays now.")

    play.__annotations__["recording"] = names
    return play
