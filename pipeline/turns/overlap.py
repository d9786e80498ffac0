"""A sound over the agent, which may become a turn of the user."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.pipeline.audio.chunk import RATE
from rejoinder.pipeline.events import FloorEvent, OverlapEnded, OverlapStarted
from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns.agent_side import AgentSide
from rejoinder.pipeline.turns.interruption import (
    OverlapEvidence,
    is_backchannel,
    is_interruption,
    prefer_backchannel,
)
from rejoinder.pipeline.words import normalise

LAG_MS = 96
"""Longest time that voice activity lags behind the level at the end of a "mm-hm"."""
HOLDING_MS = 128
"""Speech, beyond ``notice_ms``, that pauses a client that holds its audio: it stops at once. Other clients
first play what they have, for up to 200 ms."""


@dataclass(slots=True)
class Overlap:
    """A sound that began while the agent spoke.

    agent: the agent that it is over.
    voiced: the voice in it so far, in samples at 16 kHz.
    goes_on: whether it goes on with a turn whose end was decided too soon.
    text: the newest transcript, None before the first one.
    resumed: whether the agent speaks on under it, because it sounds like a backchannel so far.
    """

    agent: AgentSide
    voiced: int
    goes_on: bool = False
    text: str | None = None
    resumed: bool = False

    def read(self, transcript: Transcript) -> None:
        """Set ``text`` from a transcript: to its likeliest words, or to a backchannel that it may be."""
        plain = self.agent.is_finishing or self._is_echo(transcript.text)
        self.text = transcript.text if plain else prefer_backchannel(transcript)

    @property
    def is_agreement(self) -> bool:
        """Whether the words are a backchannel. At the agent's end they may be an answer instead."""
        text = self.text or ""
        said = normalise(text) != "" and not self.agent.is_finishing
        return said and is_backchannel(text) and not self._is_echo(text)

    @property
    def sounds_harmless(self) -> bool:
        """Whether the sound so far is a backchannel, or no words: the agent speaks on under it.

        The first 280 ms of 67 backchannels were that in 63 cases, of 18 tics in all, and of 90 interruptions
        in 12 (docs/lab/interaction.md). It does not hold for an echo, for the user's own turn that goes on,
        or at the agent's end.
        """
        if self.text is None or self.goes_on or self.agent.is_finishing or self.agent.is_audible:
            return False
        return is_backchannel(self.text)

    def review(self, onset: int, in_pause: bool) -> list[FloorEvent]:
        """Update ``resumed`` by the newest transcript, and return the event of a change.

        The agent speaks on while the sound is harmless so far, and waits again once it is not. In a pause it
        only waits again: a fragment may go on, and other sounds are decided.
        onset: sample at which the sound began. in_pause: whether its voice has paused.
        """
        before, self.resumed = self.resumed, self.sounds_harmless and (self.resumed or not in_pause)
        if self.resumed is before:
            return []
        return [OverlapEnded((self.text or "").strip(), False) if self.resumed else OverlapStarted(onset)]

    def is_interruption(self, silence: int, is_final: bool, options: Endpointing) -> bool | None:
        """Return whether the agent must yield; None while that is unknown.

        silence: samples since the voice ended, 0 while it goes on.
        is_final: whether the text covers all of the voice.
        """
        evidence = OverlapEvidence(
            voiced_ms=self.voiced * 1000 / RATE,
            silent_ms=silence * 1000 / RATE,
            text=self.text,
            is_final=is_final,
            agent_finishing=self.agent.is_finishing,
            goes_on=self.goes_on,
            agent_audible=self.agent.is_audible,
            echo_learnt=self.agent.echo_learnt,
            is_echo=self.text is not None and self._is_echo(self.text),
        )
        return is_interruption(evidence, options.start_ms, options.assertiveness)

    def _is_echo(self, text: str) -> bool:
        return self.agent.is_echo(text, over_agent=True)
