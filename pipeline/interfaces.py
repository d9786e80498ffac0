"""What a model must offer to take part, in small protocols."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

from rejoinder.pipeline.audio.chunk import AudioChunk, Samples


class CallMessage(TypedDict):
    """A call of a tool in a chat prompt: ``function`` has its name, and the arguments as JSON."""

    id: str
    type: str
    function: dict[str, str]


class Message(TypedDict):
    """One entry of a chat prompt: ``role`` is system, user or assistant, or tool for what a call returned.

    Where tools were called it has OpenAI's chat shape, and so more fields.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[CallMessage]]
    tool_call_id: NotRequired[str]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the language model wants called: ``arguments`` is a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that a reply may call, in OpenAI's chat shape; without ``functions``, none.

    choice: "auto", "required", or an object that names the one to call. parallel: whether it may call
    several at once.
    """

    functions: Sequence[dict[str, Any]] = ()
    choice: str | dict[str, Any] = "auto"
    parallel: bool = True


NO_TOOLS = Tools()


@dataclass(frozen=True, slots=True)
class Transcript:
    """Recognised words.

    text: the words of the whole turn so far.
    is_final: no more words can come from the audio up to ``end``.
    end: index of the sample after the last one that was recognised.
    others: what ``text`` may be as well, nearly as likely; of a word by itself a recogniser is seldom sure.
    over: how likely it is that the speaker is done, by the sound of these words, from 0 to 1; None where that
        is unknown. More than 0.9 counts as 0.9; below 0.4 no answer is begun before the end of the turn is
        near. Its weight is fitted to Whisper tiny.en: ``rejoinder bench turns --fit`` fits another's.

    Raises ValueError for another ``over``.
    """

    text: str
    is_final: bool
    end: int
    others: tuple[str, ...] = ()
    over: float | None = None

    def __post_init__(self) -> None:
        if self.over is not None and not 0.0 <= self.over <= 1.0:
            raise ValueError(f"over is a probability, from 0 to 1, and not {self.over}")


class VadStream(Protocol):
    """Voice activity in one session's audio."""

    def feed(self, chunk: AudioChunk) -> Sequence[tuple[int, float]]:
        """Return (index after the last sample, probability of speech) for each window completed.

        Runs inline: it must take well under a millisecond per window.
        """
        ...


@runtime_checkable
class SharedVadStream(Protocol):
    """Voice activity that is cheaper for several sessions at once; for a ``VadStream``."""

    async def feed_together(self, chunk: AudioChunk) -> Sequence[tuple[int, float]]:
        """Return what ``feed`` does, found together with what other sessions hear in this moment.

        It waits for one turn of the event loop at most. Cancelling hurts none of the others.
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

    async def transcribe(self, *, is_final: bool) -> Transcript:
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


@runtime_checkable
class ToolLlm(Protocol):
    """A language model that can call tools as well; it is an ``Llm`` with one more method."""

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the answer and the calls in it, each of them whole; closing the generator cancels both.

        Raises ModelError.
        """
        ...


@runtime_checkable
class MonitoredLlm(Protocol):
    """A language model whose engine may end before the program does; an ``Llm`` with one more property."""

    @property
    def failed(self) -> str:
        """Why it can answer nobody any more, "" while it can."""
        ...


@runtime_checkable
class TextLlm(Protocol):
    """A language model that tells text requests from replies; it is an ``Llm`` with one more method."""

    def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream an answer that is read and gives way to those that are heard; otherwise as ``reply``."""
        ...


@runtime_checkable
class TokenLlm(Protocol):
    """A language model that can say how long a prompt is; it is an ``Llm`` with one more method."""

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens a reply to these messages reads. Raises ModelError."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply has cost its language model, in tokens.

    read: of the prompt, whether or not a cache held some of it. written: of the answer, in the pieces that
    the model streams, which are tokens but where one of them is only a part of a character.
    """

    read: int
    written: int


class Tts(Protocol):
    """A voice."""

    def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause, first sample at 0; closing the generator cancels it.

        Yields nothing for text without a spoken form. A voice that knows when it says which word gives that
        with each chunk (``AudioChunk.words``); else they are spread over the audio. Raises ModelError.
        """
        ...
