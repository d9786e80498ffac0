"""When to transcribe the user's turn, and when to call the turn model. Durations are samples at 16 kHz."""

from __future__ import annotations

from rejoinder.pipeline.audio.chunk import in_samples
from rejoinder.pipeline.engines.load_shedding import LoadLevel

PARTIAL_SAMPLES = in_samples(500)
"""New audio needed for another partial transcript."""
DIP_SAMPLES = in_samples(50)
"""Quiet that may be the end of the turn. Few gaps between words are this long. After a shorter one, Whisper
tends to repeat words (docs/lab/latency-listening.md)."""
OVERLAP_DIP_SAMPLES = in_samples(20)
"""Quiet needed while the agent speaks: the words only decide whether the agent goes on."""
OVERLAP_DIPS_APART_SAMPLES = in_samples(200)
"""New audio needed between two transcripts for such quiet."""
FIRST_READING_SAMPLES = in_samples(280)
"""Sound over the agent that is enough for its first transcript. From less, Whisper reads a third more of the
interruptions as nothing, and 15 of 100 backchannels as words."""
READINGS_APART_SAMPLES = in_samples(240)
"""New audio needed for another transcript of a sound over the agent."""
ASK_SAMPLES = in_samples(96)
"""Silence before the turn model's first call. Each time the silence doubles, it is called again, because it
judges by the silence too."""


def next_ask(quiet: int, asked: int | None) -> int:
    """Return the sample at which to call the turn model next.

    quiet: sample at which the silence began. asked: sample of the last call, None if there was none.
    """
    if asked is None or asked < quiet + ASK_SAMPLES:  # the last call was about an earlier pause
        return quiet + ASK_SAMPLES
    return quiet + 2 * (asked - quiet)


def is_worth_it(new: int, dips: bool, level: LoadLevel, behind: bool) -> bool:
    """Return whether ``new`` samples justify a transcript before voice activity detects a pause.

    dips: whether the level has just fallen. behind: whether the engines are behind with their work.
    """
    if behind:
        return False
    if level >= LoadLevel.PARTIALS:
        return dips and new >= PARTIAL_SAMPLES
    return dips or new >= PARTIAL_SAMPLES
