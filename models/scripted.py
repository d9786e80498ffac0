"""Models without weights, for scenarios in virtual time, load tests and trials of the wires.

They answer from a script and take time with ``asyncio.sleep``, so that in virtual time a conversation has one
exact timeline. Any loud audio counts as speech; its words come from the script, not from the audio. Results
with these models say nothing about real audio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

import numpy as np

from rejoinder.models.adapter import Adapter
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.history import GREETED
from rejoinder.pipeline.interfaces import Message, ToolCall, Tools, Transcript
from rejoinder.pipeline.replying.next.position import LOST_CUE, unheard

WINDOW = 512
"""Samples in one VAD window, 32 ms at 16 kHz."""
LOUD = 0.02
"""RMS level above which a window is speech, about -34 dBFS."""
KEPT_PROMPTS = 100
"""Prompts that a scripted language model keeps for tests: a soak makes thousands."""
SECONDS_PER_CHARACTER = 0.06
"""Length of the synthesised tone per character of text."""


class ScriptedVad:
    """Takes each window of 32 ms that is louder than about -34 dBFS as speech."""

    def stream(self) -> ScriptedVadStream:
        """Open the state of one session."""
        return ScriptedVadStream()


class ScriptedVadStream:
    """The VAD state of one session."""

    def __init__(self) -> None:
        self._rest: Samples = np.zeros(0, np.float32)
        self._position = 0

    def feed(self, chunk: AudioChunk) -> list[tuple[int, float]]:
        """Return for each whole window its end, in samples, and 1.0 if it is loud or 0.0 if it is quiet.

        Raises ValueError if the audio is not at 16 kHz.
        """
        if chunk.rate != RATE:
            raise ValueError(f"the scripted VAD listens at {RATE} Hz, not {chunk.rate}")
        audio = np.concatenate((self._rest, chunk.samples()))
        results = []
        for first in range(0, len(audio) - WINDOW + 1, WINDOW):
            self._position += WINDOW
            window = audio[first : first + WINDOW]
            level = float(np.dot(window, window)) / WINDOW
            results.append((self._position, 1.0 if level > LOUD**2 else 0.0))
        self._rest = audio[len(results) * WINDOW :]
        return results


class ScriptedStt:
    """Transcribes each turn as the next line of a script, word by word as audio arrives.

    lines: the transcript of each turn; the last line repeats.
    seconds: duration of a transcription.
    words_per_second: words in a partial transcript per second of audio. A final transcript has all words.
    """

    def __init__(self, lines: Iterable[str], seconds: float = 0.06, words_per_second: float = 3.0) -> None:
        self.lines = list(lines)
        self.seconds = seconds
        self.words_per_second = words_per_second

    def stream(self) -> ScriptedSttStream:
        """Open the state of one session, at the first line."""
        return ScriptedSttStream(self)


class ScriptedSttStream:
    """The STT state of one session."""

    def __init__(self, stt: ScriptedStt) -> None:
        self._stt = stt
        self._turn = -1
        self._fed = 0
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the turn. Only its length counts."""
        if not self._fed and len(chunk):
            self._turn += 1
        self._fed += len(chunk)
        self._end = chunk.end

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the words of the line that fit into the audio so far, or all words if ``is_final``.

        Cancelling changes nothing.
        """
        line = self._stt.lines[min(self._turn, len(self._stt.lines) - 1)] if self._fed else ""
        end, words = self._end, line.split()
        count = len(words) if is_final else int(self._fed / RATE * self._stt.words_per_second)
        await asyncio.sleep(self._stt.seconds)
        return Transcript(" ".join(words[:count]), is_final, end)

    def reset(self) -> None:
        """End the turn."""
        self._fed = 0


class ScriptedTurnModel:
    """Answers every call with the same probability, after ``seconds``."""

    def __init__(self, probability: float = 1.0, seconds: float = 0.04) -> None:
        self._probability = probability
        self._seconds = seconds

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the fixed probability. Audio, text and cancelling change nothing."""
        await asyncio.sleep(self._seconds)
        return self._probability


class ScriptedLlm:
    """Answers with the lines of a script, in order. Without lines, it repeats the last message.

    The agent's messages in the prompt are counted, a greeting in the system prompt, too. Asked to go on with
    a reply that was lost, it says the rest of the line that it has begun.

    If there are tools, the text after an ``@`` is a call: ``Let me see. @weather {"city": "Rome"}``.

    first: seconds before the first token.
    each: seconds before each later token.
    fail_after: number of tokens after which to raise ModelError; None for never.
    prompts: the last ``KEPT_PROMPTS`` of them.
    """

    def __init__(
        self,
        lines: Sequence[str] = (),
        first: float = 0.08,
        each: float = 0.02,
        fail_after: int | None = None,
    ) -> None:
        self.lines = list(lines)
        self.first = first
        self.each = each
        self.fail_after = fail_after
        self.prompts: list[list[Message]] = []
        self._asked = 0
        self.open = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Stream the next line word by word. Closing the generator stops it."""
        async with aclosing(self._say(self._line(messages))) as words:
            async for word in words:
                yield word

    async def answer(self, messages: Sequence[Message], tools: Tools) -> AsyncGenerator[str | ToolCall, None]:
        """Stream the next line word by word, then its calls. Closing the generator stops it."""
        said, *calls = self._line(messages).split("@")
        async with aclosing(self._say(said)) as words:
            async for word in words:
                yield word
        for number, call in enumerate(calls):
            name, _, arguments = call.strip().partition(" ")
            yield ToolCall(f"call_{self._asked}_{number}", name, arguments or "{}")

    def _line(self, messages: Sequence[Message]) -> str:
        self._asked += 1
        self.prompts.append(list(messages))
        del self.prompts[:-KEPT_PROMPTS]
        if messages and messages[-1]["content"] == LOST_CUE:
            said = next(one["content"] for one in reversed(messages) if one["role"] == "assistant")
            begun = [line for line in self.lines if line.startswith(said.rstrip("—").strip())]
            return unheard(begun[0], said) if begun else ""
        answers = sum(message["role"] == "assistant" or _greets(message) for message in messages)
        return self.lines[answers % len(self.lines)] if self.lines else f"You said: {messages[-1]['content']}"

    async def _say(self, line: str) -> AsyncGenerator[str, None]:
        self.open += 1
        try:
            await asyncio.sleep(self.first)
            for count, word in enumerate(line.split()):
                if count == self.fail_after:
                    raise ModelError("scripted", f"failed after {count} tokens as the script says")
                yield word + " "
                await asyncio.sleep(self.each)
        finally:
            self.open -= 1

    def count(self, messages: Sequence[Message]) -> int:
        """Return the number of tokens in the prompt; each word counts as one token."""
        return sum(len(message["content"].split()) for message in messages)

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing, because there is no cache. Cancelling changes nothing."""


def _greets(message: Message) -> bool:
    return message["role"] == "system" and GREETED.partition("{")[0] in message["content"]


class ScriptedTts:
    """Speaks text as a tone of ``SECONDS_PER_CHARACTER`` per character, ``seconds`` after the request."""

    def __init__(self, seconds: float = 0.05, rate: int = 24_000) -> None:
        self.seconds = seconds
        self.rate = rate
        self.open = 0

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the tone in a single chunk, or no chunk if the text has no letter or digit.

        Closing the generator stops it.
        """
        if not any(map(str.isalnum, text)):
            return
        self.open += 1
        try:
            await asyncio.sleep(self.seconds)
            times = np.arange(int(len(text) * SECONDS_PER_CHARACTER * self.rate)) / self.rate
            yield AudioChunk(to_pcm(0.3 * np.sin(2 * np.pi * 220 * times).astype(np.float32)), self.rate)
        finally:
            self.open -= 1


def create(argument: str) -> object:
    """Create a scripted model from ``vad``, ``turn``, ``tts``, ``stt|LINE|LINE…`` or ``llm|LINE|LINE…``.

    Raises ModelError for another name.
    """
    kind, *lines = argument.split("|")
    match kind:
        case "vad":
            return ScriptedVad()
        case "turn":
            return ScriptedTurnModel()
        case "stt":
            return ScriptedStt(lines or ["hello there"])
        case "llm":
            return ScriptedLlm(lines)
        case "tts":
            return ScriptedTts()
        case _:
            raise ModelError("scripted", f"there is no {kind!r}; there are vad, turn, stt, llm and tts")


ADAPTER = Adapter("scripted", lambda argument, threads, placement: create(argument), finder=str)
"""What the registry finds: it serves in every role."""
