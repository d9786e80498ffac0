"""What a model must offer to take part: seven small protocols."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from rejoinder.pipeline.audio import AudioChunk, Samples


class Message(TypedDict):
    """One entry of a chat prompt: ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """Recognised words.

    text: the words of the whole turn so far.
    is_final: no more words can come from the audio up to ``end``.
    end: index of the sample after the last one that was recognised.
    """

    text: str
    is_final: bool
    end: int


class VadStream(Protocol):
    """Voice activity in one session's audio."""

    def feed(self, chunk: AudioChunk) -> Sequence[tuple[int, float]]:
        """Return (index after the last sample, probability of speech) for each window completed.

        Runs inline: it must take well under a millisecond per window.
        """
        ...


class Vad(Protocol):
    """A voice activity detector whose weights are shared."""

    def stream(self) -> VadStream:
        """Open the state of one session."""
        ...


class SttStream(Protocol):
    """Speech recognition of one session, one turn at a time."""

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the current turn; memory is bounded by the adapter."""
        ...

    async def transcribe(self, is_final: bool) -> Transcript:
        """Recognise everything fed since the last reset; cancelling keeps the audio. Raises ModelError."""
        ...

    def reset(self) -> None:
        """Forget the turn."""
        ...


class Stt(Protocol):
    """A speech recogniser whose weights are shared."""

    def stream(self) -> SttStream:
        """Open the state of one session."""
        ...


class TurnModel(Protocol):
    """A judge of whether a turn is over."""

    async def probability(self, audio: Samples, text: str) -> float:
        """Return how likely it is that the speaker of ``audio`` (16 kHz) is done. Raises ModelError."""
        ...


class Llm(Protocol):
    """A language model."""

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the answer; closing the generator cancels the request. Raises ModelError."""
        ...

    async def warm(self, messages: Sequence[Message]) -> None:
        """Bring a prompt into the model's cache if that is cheap; do nothing otherwise."""
        ...


class Tts(Protocol):
    """A voice."""

    def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause, first sample at 0; closing the generator cancels it.

        Yields nothing for text without a spoken form. A voice that knows when it says which word gives that
        with each chunk (``AudioChunk.words``); else they are spread over the audio. Raises ModelError.
        """
        ...
