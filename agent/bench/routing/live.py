"""Asks a server the same questions in three ways: always the large model, by rules, and with openings too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.routing.chat import DelayedChat
from rejoinder.agent.bench.routing.join import join_faults
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.interfaces import Llm

EASY_QUESTIONS = (
    "Hello, how are you?",
    "What is your name?",
    "Can you hear me?",
    "Thank you very much.",
    "How old are you?",
    "Are you a robot?",
    "Can you say that again?",
    "Who made you?",
)
"""Small talk, and words about the conversation."""
HARD_QUESTIONS = (
    "Why is the sky blue?",
    "How do I reset my password?",
    "What is the difference between a debit card and a credit card?",
    "How long does it take to fly from London to New York?",
    "Can you explain how a heat pump works?",
    "What should I do if my train is delayed by more than two hours?",
    "Which vegetables can I plant in the garden in early spring?",
    "How do I calculate the interest on a loan?",
)
"""Questions for facts and for advice."""
BENCH_RULES = [{"model": "small", "difficulty": "easy", "max_words": 12}]
"""The rules of the routed ways."""
PHRASES = ["Sure, let me look at that,", "Okay, let me see,", "One moment, let me think,"]
"""The openings where the small model's words do not fit."""
INPUT_PRICE = 1.0
"""Of a million tokens of the large model's prompts. The small one costs nothing."""
OUTPUT_PRICE = 4.0
"""Of a million tokens of its answers."""
REPLY_SECONDS = 120.0
"""Longest wait for a reply."""


@dataclass(slots=True)
class WayResult:
    """The figures of one way. first_audio_ms: of each question, from the request for a reply.

    by_big: questions that the large model answered. cost: of the large model's tokens, requests that were
    closed included. joins: each opening, what followed it, and the faults of the join.
    """

    name: str
    first_audio_ms: list[float] = field(default_factory=list)
    requests: int = 0
    by_big: int = 0
    cost: float = 0.0
    joins: list[tuple[str, str, list[str]]] = field(default_factory=list)


def ways(opening_model: str) -> dict[str, dict[str, str]]:
    """Return the environment of the server for each way. opening_model: of the openings, "" for phrases."""
    routes = {"REJOINDER_ROUTES": json.dumps(BENCH_RULES)}
    openings = {"REJOINDER_OPENINGS": json.dumps(PHRASES), "REJOINDER_OPENING_MODEL": opening_model}
    return {"always big": {}, "routed": routes, "routed, with openings": routes | openings}


async def compare(
    big: Llm,
    small: str,
    voice: str,
    delay_s: float,
    rounds: int,
    opening_model: str,
    done: Callable[[], None],
) -> list[WayResult]:
    """Return the figures of the three ways. Cancelling ends the servers.

    big: writes the words of the large model. small: the spec of the small one. voice: the spec of the voice.
    delay_s: from a request to the large model to its first word, at least. done: called after each question.
    Raises PipelineError if a reply does not come.
    """
    chat, results = DelayedChat(big, delay_s), []
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
        stack.callback(server.close)
        host, port = server.sockets[0].getsockname()[:2]
        tables = {
            "big": {"url": f"http://{host}:{port}/v1", "model": "big", "first_token_s": delay_s + 20.0,
                    "between_tokens_s": 20.0, "can_warm": False},
            "small": {"spec": small, "first_token_s": 20.0},
        }  # fmt: skip
        common = {"REJOINDER_LLM": "big small", "REJOINDER_MODELS": json.dumps(tables), "REJOINDER_VAD":
                  "scripted:vad", "REJOINDER_TURN": "", "REJOINDER_STT": "scripted:stt",
                  "REJOINDER_TTS": voice}  # fmt: skip
        for name, environment in ways(opening_model).items():
            results.append(await _way(name, common | environment, chat, rounds, done))
    return results


async def _way(
    name: str, environment: Mapping[str, str], chat: DelayedChat, rounds: int, done: Callable[[], None]
) -> WayResult:
    result = WayResult(name)
    async with own_server({}, None, environment) as url:
        chat.reset()
        for question in (*EASY_QUESTIONS, *HARD_QUESTIONS) * rounds:
            root = url.partition("/v1/")[0]
            before = chat.requests
            async with connect(f"{root}/v1/realtime?model=default", proxy=None, compression=None) as socket:
                result.first_audio_ms.append(await _ask(socket, question, chat))
            result.by_big += chat.requests > before
            done()
    result.requests = chat.requests
    result.cost = (chat.read * INPUT_PRICE + chat.written * OUTPUT_PRICE) / 1e6
    result.joins = [(opening, rest, join_faults(opening, rest)) for opening, rest in chat.joins]
    return result


async def _ask(socket: ClientConnection, question: str, chat: DelayedChat) -> float:
    """Type a question, in a call of its own; return the milliseconds to the first audio.

    The large model writes its answer to the end, and the rest of the audio is cancelled.
    """
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}
    before = chat.requests
    try:
        async with asyncio.timeout(REPLY_SECONDS):
            await event_of(socket, "conversation.created")
            await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
            begun = time.perf_counter()
            await socket.send(json.dumps({"type": "response.create"}))
            await event_of(socket, "response.output_audio.delta")
            waited = 1000.0 * (time.perf_counter() - begun)
            if chat.requests > before:
                await chat.idle.wait()
            await socket.send(json.dumps({"type": "response.cancel"}))
    except TimeoutError:
        raise PipelineError(f"{question!r} was not answered within {REPLY_SECONDS:g} s") from None
    return waited


def words_of_joins(results: Sequence[WayResult]) -> tuple[int, int, dict[str, int]]:
    """Return how many joins there are, in how many no rule finds a fault, and how often each fault occurs."""
    joins = [join for result in results for join in result.joins]
    faults: dict[str, int] = {}
    for _, _, found in joins:
        for fault in found:
            faults[fault] = faults.get(fault, 0) + 1
    return len(joins), sum(not found for _, _, found in joins), faults
