"""What a conversation is made with: its models, and what may differ from one session to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rejoinder.pipeline.endpointer import Endpointing
from rejoinder.pipeline.interfaces import Llm, Message, Stt, Tts, TurnModel, Vad

INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short spoken sentences."


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a conversation. Their weights are shared by all sessions."""

    vad: Vad
    stt: Stt
    llm: Llm
    tts: Tts
    turn: TurnModel | None = None


@dataclass(slots=True)
class Options:
    """What may differ from one session to the next.

    examples: an imagined beginning of the conversation, which shows a small model how to answer.
    detect_turns: False means that the client says where turns begin and end.
    create_response: answer a turn when it ends.
    interrupt_response: speech stops the agent; False means that it finishes first, and then answers.
    holds_audio: the client holds what it has from OverlapStarted on, until OverlapEnded lets it play on or
        SpeechStarted makes it void. False means that it plays on and falls silent when nothing more comes.
    speculate: start answers at the first sign of an end; False where those thrown away would be billed.
    """

    instructions: str = INSTRUCTIONS
    examples: Sequence[Message] = ()
    endpointing: Endpointing = field(default_factory=Endpointing)
    detect_turns: bool = True
    create_response: bool = True
    interrupt_response: bool = True
    holds_audio: bool = False
    speculate: bool = True
