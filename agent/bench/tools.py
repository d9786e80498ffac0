"""Measures how often a language model calls the right tool with the right arguments for spoken requests."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from rich.table import Table

from rejoinder.agent.bench.cases.tool_requests import DEFINITIONS, ToolRequest
from rejoinder.pipeline import AudioChunk, Message, Stt, ToolCall, ToolLlm, Tools, Tts
from rejoinder.pipeline.audio.chunk import RATE, to_pcm
from rejoinder.pipeline.audio.resample import ToSession
from rejoinder.pipeline.errors import ModelError

TOOL_INSTRUCTIONS = (
    "You are on the telephone. Call a tool if the caller wants what it does; otherwise answer."
)
"""The system prompt of the requests."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a model did for one request.

    heard: the transcript. called: the call as text, "" for none. right: whether tool and arguments are right;
    right_tool: whether the tool is. seconds: from the request to the whole answer.
    """

    words: str
    heard: str
    called: str
    right_tool: bool
    right: bool
    seconds: float


async def spoken(request: ToolRequest, tts: Tts, stt: Stt) -> str:
    """Return a request as the recogniser hears it from a voice. Cancelling stops both. Raises ModelError."""
    to_session, pcm = None, b""
    async with aclosing(tts.speak(request.words)) as chunks:
        async for chunk in chunks:
            to_session = to_session or ToSession(chunk.rate)
            pcm += to_pcm(to_session.feed(chunk))
    stream = stt.stream()
    stream.feed(AudioChunk(pcm + bytes(RATE), RATE))
    return (await stream.transcribe(is_final=True)).text


async def answer(request: ToolRequest, heard: str, llm: ToolLlm) -> ToolAnswer:
    """Return what a model does for a request. A model's error counts as a wrong answer.

    Cancelling stops the model.
    """
    messages: list[Message] = [
        {"role": "system", "content": TOOL_INSTRUCTIONS},
        {"role": "user", "content": heard},
    ]
    began, calls, failure = time.perf_counter(), list[ToolCall](), ""
    try:
        async with aclosing(llm.answer(messages, Tools(DEFINITIONS))) as pieces:
            async for piece in pieces:
                if isinstance(piece, ToolCall):
                    calls.append(piece)
    except ModelError as error:
        failure = str(error)
    called = ", ".join(f"{call.name}({call.arguments})" for call in calls) or failure
    names = [call.name for call in calls]
    right_tool = not failure and names == ([request.tool] if request.tool else [])
    right = right_tool and (not calls or _arguments(calls[0]) == dict(request.arguments))
    seconds = time.perf_counter() - began
    return ToolAnswer(request.words, heard, called, right_tool, right, seconds)


def _arguments(call: ToolCall) -> dict[str, str]:
    return {name: str(value).strip().lower() for name, value in json.loads(call.arguments or "{}").items()}


def table(model: str, answers: Sequence[ToolAnswer]) -> Table:
    """Return the table of all requests."""
    right = sum(answer.right for answer in answers)
    shown = Table("heard", "called", "right", title=f"{model}: {right} of {len(answers)} right")
    for each in answers:
        shown.add_row(each.heard, each.called[:80], "yes" if each.right else "")
    return shown
