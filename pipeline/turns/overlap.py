"""A sound over the agent, which may become a turn of the user."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.pipeline.audio.chunk import RATE
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


@dataclass(slots=True)
class Overlap:
    """A sound that began while the agent spoke.

    agent: the agent that it is over.
    voiced: the voice in it so far, in samples at 16 kHz.
    text: the newest transcript, None before the first one.
    """

    agent: AgentSide
    voiced: int
    text: str | None = None

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
            agent_audible=self.agent.is_audible,
            echo_learnt=self.agent.echo_learnt,
            is_echo=self.text is not None and self._is_echo(self.text),
        )
        return is_interruption(evidence, options.start_ms, options.assertiveness)

    def _is_echo(self, text: str) -> bool:
        return self.agent.is_echo(text, over_agent=True)
