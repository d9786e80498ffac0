"""Turns the events of a Wyoming client into requests, without any I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rejoinder.agent.wires.wyoming.audio import Ear, Format
from rejoinder.agent.wires.wyoming.protocol import Event, text
from rejoinder.pipeline import RATE, AudioChunk, Channel, ProtocolError

MAX_SPOKEN = 10_000
"""Most characters of a text to speak: about twelve minutes."""
MAX_QUESTION = 4_000
"""Most characters of a question."""
MAX_NAME = 200
"""Most characters of a language, a format, or a conversation's identifier."""


@dataclass(frozen=True, slots=True)
class Describe:
    """Asks for the server's ``info``."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a ``pong`` with this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Hear:
    """Asks for a transcript. language: "" where the client names none."""

    audio: AudioChunk
    language: str


@dataclass(frozen=True, slots=True)
class Speak:
    """Asks for the text in ``texts`` to be spoken.

    streamed: whether the text comes in pieces; the client then gets an event at the end. format: of the text,
    "" for plain. voice: its name, "" where the client names none.
    """

    streamed: bool = False
    format: str = ""
    voice: str = ""
    # Each piece has at least one character, so the channel has room for all of them.
    texts: Channel[str] = field(default_factory=lambda: Channel(MAX_SPOKEN, "wyoming-text"))


@dataclass(frozen=True, slots=True)
class Handle:
    """Asks for an answer. conversation: its identifier, "" where the client names none."""

    text: str
    conversation: str


Request = Describe | Ping | Hear | Speak | Handle


class Requests:
    """Turns the events of one connection into requests."""

    def __init__(self) -> None:
        self._language = ""
        self._ear: Ear | None = None
        self._speak: Speak | None = None
        self._characters = 0

    def take(self, event: Event) -> Request | None:
        """Take one event; return the request that is known with it, if any. Raises ProtocolError.

        Unknown event types are ignored, as the protocol asks.
        """
        data = event.data
        match event.type:
            case "describe":
                return Describe()
            case "ping":
                return Ping(text(data, "text", MAX_QUESTION))
            case "transcribe":
                self._language = text(data, "language", MAX_NAME)
            case "audio-start":
                self._ear = Ear(Format.of(data))
            case "audio-chunk":
                self._ear = self._ear or Ear(Format.of(data))
                self._ear.feed(event)
            case "audio-stop":
                ear, language = self._ear, self._language
                self._ear, self._language = None, ""
                return Hear(ear.all() if ear else AudioChunk(b"", RATE), language)
            case "transcript":
                context = data.get("context")
                named = text(context, "conversation_id", MAX_NAME) if isinstance(context, dict) else ""
                return Handle(text(data, "text", MAX_QUESTION), named)
            case _:
                return self._spoken(event.type, data)
        return None

    def _spoken(self, type_: str, data: dict[str, Any]) -> Speak | None:
        speak = self._speak
        match type_:
            case "synthesize" if speak is None:
                if data.get("text") is None:
                    raise ProtocolError("synthesize without text", "invalid")
                speak = Speak(False, text(data, "text_format", MAX_NAME), _voice(data))
                if words := text(data, "text", MAX_SPOKEN):
                    speak.texts.send_nowait(words)
                speak.texts.close()
                return speak
            case "synthesize":
                pass  # repeats the whole text, for servers that do not support pieces
            case "synthesize-start":
                if speak is not None:
                    raise ProtocolError("synthesize-start without the end of the text before it", "invalid")
                self._speak = Speak(True, text(data, "text_format", MAX_NAME), _voice(data))
                self._characters = 0
                return self._speak
            case "synthesize-chunk" | "synthesize-stop":
                if speak is None:
                    raise ProtocolError(f"{type_} without synthesize-start", "invalid")
                if type_ == "synthesize-stop":
                    speak.texts.close()
                    self._speak = None
                else:
                    self._add(speak, text(data, "text", MAX_SPOKEN))
        return None

    def _add(self, speak: Speak, words: str) -> None:
        self._characters += len(words)
        if self._characters > MAX_SPOKEN:
            raise ProtocolError(f"more than {MAX_SPOKEN} characters in one request", "too-long")
        if words:
            speak.texts.send_nowait(words)


def _voice(data: dict[str, Any]) -> str:
    voice = data.get("voice")
    return text(voice, "name", MAX_NAME) if isinstance(voice, dict) else ""
