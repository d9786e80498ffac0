"""Where facts about callers are kept, and who a caller is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

WITHHELD = ("anonymous", "blocked", "private", "restricted", "unavailable", "unknown", "withheld")
"""What carriers give as the number of callers who withhold theirs."""
KEYPAD = str.maketrans("abcdefghijklmnopqrstuvwxyz", "22233344455566677778889999")
"""The digit of each letter. Twilio gives +266696687, which spells ANONYMOUS, as a withheld number."""


def identity(caller: str) -> str:
    """Return the caller's number or name; "" for one who withholds it, because all of them look the same."""
    plain = caller.strip().lower().removeprefix("sip:").partition("@")[0]
    spelled = {word.translate(KEYPAD) for word in WITHHELD}
    return "" if plain in WITHHELD or plain.lstrip("+") in spelled else caller.strip()


class Memory(Protocol):
    """Where facts about callers are kept. The methods block, and run in a thread, one at a time."""

    def facts(self, caller: str) -> Mapping[str, str]:
        """Return the facts about a caller, in the order in which they were told."""
        ...

    def remember(self, caller: str, key: str, value: str) -> None:
        """Keep a fact about a caller; it replaces the one of the same name."""
        ...

    def forget(self, caller: str) -> None:
        """Delete all facts about a caller."""
        ...
