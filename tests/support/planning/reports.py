"""Reports of benches, as plans of two tiers read them."""

from __future__ import annotations

import random
from typing import Any

TURNS = 40
DRAWN = random.Random(0)


def turn() -> dict[str, float]:
    """Return the parts of an answer in ms, spread as measured ones are."""
    return {
        "notice the pause": 30.0,
        "final transcript": DRAWN.gammavariate(4.0, 20.0),
        "LLM first token": DRAWN.gammavariate(9.0, 4.0),
        "LLM first clause": DRAWN.gammavariate(9.0, 5.0),
        "wait for the end of the turn": DRAWN.expovariate(1 / 90.0),
        "TTS first audio": DRAWN.gammavariate(9.0, 2.0),
        "network and client": 20.0,
    }


LOAD: dict[str, Any] = {
    "every_s": 8.0,
    "machine": {"cores": 2},
    "levels": [
        {
            "sessions": 1,
            "answered": TURNS,
            "turns": [turn() for _ in range(TURNS)],
            "engines": {
                "stt": {"jobs": 8.0 * TURNS, "busy_s": 0.6 * TURNS},
                "turn": {"jobs": 3.0 * TURNS, "busy_s": 0.15 * TURNS},
                "llm": {"jobs": 40.0 * TURNS, "busy_s": 0.5 * TURNS},
                "tts": {"jobs": 5.0 * TURNS, "busy_s": 0.12 * TURNS},
            },
        }
    ],
}
OVERHEAD: dict[str, Any] = {
    "vad": "silero",
    "levels": [
        {"way": "WebSocket", "sessions": 50, "speaking": 0, "microseconds": 60.0},
        {"way": "WebSocket", "sessions": 50, "speaking": 25, "microseconds": 100.0},
        {"way": "Session", "sessions": 50, "speaking": 25, "microseconds": 50.0},
    ],
}
