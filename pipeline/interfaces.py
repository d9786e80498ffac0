"""The protocols that models implement, and the values that they exchange with the pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

from rejoinder.pipeline.audio.chunk import AudioChunk, Samples


class CallMessage(TypedDict):
    """A tool call in a chat prompt; ``function`` holds the tool's name and its arguments as JSON."""

    id: str
    type: str
    function: dict[str, str]


class Message(TypedDict):
    """One message of a chat prompt, in OpenAI's chat format.

    role: "system", "user" or "assistant"; "tool" for the result of a tool call.
    tool_calls: the calls in an assistant message. tool_call_id: the call that a tool message answers.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[CallMessage]]
    tool_call_id: NotRequired[str]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the language model to call a tool; ``arguments`` is a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that a reply may call.

    functions: their definitions in OpenAI's chat format; empty for no tools.
    choice: "auto", "required", or an object that names the tool to call.
    parallel: whether one reply may call several tools.
    """

    functions: Sequence[dict[str, Any]] = ()
    choice: str | dict[str, Any] = "auto"
    parallel: bool = True


NO_TOOLS = Tools()
"""No tools, which is the default."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The words that a speech recogniser found in a turn.

    text: the words of the whole turn so far.
    is_final: whether the audio up to ``end`` can add no more words.
    end: index of the sample after the last recognised one, at 16 kHz, counted from the start of the session.
    alternatives: other texts that are nearly as likely as ``text``. A recogniser is often unsure of a single
        word.
    end_probability: probability from 0 to 1 that the speaker has finished, judged by the sound of the words;
        None if unknown. Values above 0.9 count as 0.9. Below 0.4, the reply starts only when the end of the
        turn is near. Its weight is fitted to Whisper tiny.en; ``rejoinder bench turns --fit`` fits the
        weight for another recogniser.

    Raises ValueError if ``end_probability`` is not between 0 and 1.
    """

    text: str
    is_final: bool
    end: int
    alternatives: tuple[str, ...] = ()
    end_probability: float | None = None

    def __post_init__(self) -> None:
        if self.end_probability is not None and not 0.0 <= self.end_probability <= 1.0:
            raise ValueError(f"end_probability is {self.end_probability}: it must be from 0 to 1, or None")


class VadStream(Protocol):
    """Voice activity detection for the audio of one session."""

    def feed(self, chunk: AudioChunk) -> Sequence[tuple[int, float]]:
        """Return (index after the last sample, probability of speech) for each completed window.

        It runs on the event loop, so it must take well under a millisecond per window.
        """
        ...


@runtime_checkable
class SharedVadStream(Protocol):
    """An optional addition to ``VadStream``: one model run serves several sessions."""

    async def feed_together(self, chunk: AudioChunk) -> Sequence[tuple[int, float]]:
        """Return what ``feed`` returns, computed in one batch with the audio of other sessions.

        It waits for at most one iteration of the event loop. Cancelling it does not affect other sessions.
        """
        ...


class Vad(Protocol):
    """A voice activity detector; all sessions share its weights."""

    def stream(self) -> VadStream:
        """Return new state for one session."""
        ...


class SttStream(Protocol):
    """Speech recognition for one session, one turn at a time."""

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the current turn. The adapter bounds how much it keeps."""
        ...

    async def transcribe(self, *, is_final: bool) -> Transcript:
        """Return the words in the audio fed since the last reset. Raises ModelError.

        is_final: copied to the transcript. Cancelling stops the recognition and keeps the audio.
        """
        ...

    def reset(self) -> None:
        """Drop the audio and the words of the current turn."""
        ...


class Stt(Protocol):
    """A speech recogniser; all sessions share its weights."""

    def stream(self) -> SttStream:
        """Return new state for one session."""
        ...


class TurnModel(Protocol):
    """A model that predicts whether the speaker has finished the turn."""

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the probability from 0 to 1 that the speaker has finished. Raises ModelError.

        audio: the newest audio of the turn, shape (samples,), float32 in [-1, 1], 16 kHz.
        text: the words recognised so far, "" if there are none yet. Cancelling discards the prediction.
        """
        ...


class Llm(Protocol):
    """A language model."""

    def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Yield the answer in pieces of text. Raises ModelError. Closing the generator cancels it."""
        ...

    async def warm(self, messages: Sequence[Message]) -> None:
        """Put a prompt into the model's cache if that is cheap; otherwise do nothing.

        Cancelling stops the work. It only costs speed.
        """
        ...


@runtime_checkable
class ToolLlm(Protocol):
    """An ``Llm`` with one more method: it can call tools."""

    def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Yield the answer in pieces of text, and each tool call as one complete item. Raises ModelError.

        Closing the generator cancels the request.
        """
        ...


@runtime_checkable
class ToolWarmLlm(Protocol):
    """A ``ToolLlm`` with one more method: it puts prompts with tools into its cache.

    With tools a prompt differs from its beginning on, so ``Llm.warm`` does not help.
    """

    async def warm_answer(self, messages: Sequence[Message], tools: Tools) -> None:
        """Put a prompt with tools into the model's cache if that is cheap; otherwise do nothing.

        Cancelling stops the work. It only costs speed.
        """
        ...


@runtime_checkable
class MonitoredLlm(Protocol):
    """An ``Llm`` with one more property: its health. For an engine that can fail while the program runs."""

    @property
    def failed(self) -> str:
        """The reason why the model can no longer answer; "" while it is healthy."""
        ...


@runtime_checkable
class TextLlm(Protocol):
    """An ``Llm`` with one more method: it runs text requests at a lower priority than spoken replies."""

    def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Yield the answer to a text request. It works as ``reply`` does, at a lower priority."""
        ...


@runtime_checkable
class TokenLlm(Protocol):
    """An ``Llm`` with one more method: it counts the tokens of a prompt."""

    def count(self, messages: Sequence[Message]) -> int:
        """Return the number of prompt tokens for these messages. Raises ModelError."""
        ...


@runtime_checkable
class ContextLlm(Protocol):
    """An ``Llm`` with two more members: it knows its context, and counts the tokens of a text.

    For other models the pipeline assumes a context and estimates the tokens (``context.tokens``).
    """

    @property
    def context_tokens(self) -> int:
        """Most tokens of a prompt and its answer together."""
        ...

    def tokens_in(self, text: str) -> int:
        """Return the number of tokens in a text of up to 1,000 characters, within about a millisecond."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a reply used in the language model.

    read: tokens of the prompt, cached ones included.
    written: pieces of the answer that the model streamed. A piece is one token, or several tokens that
        encode one character.
    cached: tokens of the prompt that a chat server had cached; 0 where it does not say.
    """

    read: int
    written: int
    cached: int = 0


class Tts(Protocol):
    """A voice: text to speech."""

    def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio of one clause; its first sample has index 0. Raises ModelError.

        It yields nothing for text that has no spoken form. A voice that knows the time of each word sets
        ``AudioChunk.words`` in each chunk; otherwise the pipeline estimates the times from the length of the
        words. Closing the generator cancels the synthesis.
        """
        ...
