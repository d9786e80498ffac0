"""Call actions as tools of an agent: hang up, transfer, press keys, hold, play, and say exact words."""

from __future__ import annotations

from rejoinder.models.hints import needing

with needing("server", "rejoinder.actions"):
    from rejoinder.agent.app.actions import hang_up, hold, play_from, say_from, send_digits, transfer_to

__all__ = ["hang_up", "hold", "play_from", "say_from", "send_digits", "transfer_to"]
