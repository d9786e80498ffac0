"""Measures openings: the wait for the first audio with and without them, and how the answers go on.

Two servers run side by side, and one of them has openings. Their language model is a chat server on loopback
whose first word comes late. Replies are requested in turn, once from each server, so that other load of the
machine meets both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from rejoinder.agent.bench.answers.ask import NOW
from rejoinder.agent.bench.answers.questions import Question
from rejoinder.agent.bench.answers.rules import Normalise, is_right
from rejoinder.agent.bench.callers.events import event_of
from rejoinder.agent.bench.chat_faults import faulty_chat
from rejoinder.agent.bench.failover import first_audio_ms
from rejoinder.agent.bench.routing.join import join_faults
from rejoinder.agent.config import load
from rejoinder.agent.server.own_server import own_server
from rejoinder.models.llm.failover.candidate import Candidate, Request
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.llm.routing.opening import OPENED, ask_opening, phrase
from rejoinder.models.llm.routing.settings import NO_OPENINGS
from rejoinder.models.loading import open_llm
from rejoinder.models.registry import language_model
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Llm
from rejoinder.pipeline.replying.text.answer_filter import AnswerFilter, filtered

UNCOUNTED_PAIRS = 3
"""Replies of each server before the measurement."""
PATIENT_SECONDS = 60.0
"""All deadlines of the model: it is slow, and does not fail."""


@dataclass(frozen=True, slots=True)
class Join:
    """An opening and what a model wrote behind it. faults: see ``join_faults``.

    right: whether the answer is right. alone: whether it is right without an opening.
    """

    asked: str
    opening: str
    rest: str
    faults: Sequence[str] = ()
    right: bool = False
    alone: bool = False


async def joins(
    spec: str,
    opener: str,
    phrases: Sequence[str],
    questions: Sequence[Question],
    normalise: Normalise,
    done: Callable[[], None],
) -> list[Join]:
    """Return how a model goes on behind the opening of each question. Raises PipelineError.

    opener: spec of a model that writes the openings, "" for ``phrases`` alone. done: called after each
    question. Cancelling closes the models.
    """
    settings, _ = load({"llm": spec})
    options, found = settings.options(NOW), list[Join]()
    placement = replace(settings.placement(), openings=NO_OPENINGS)
    async with AsyncExitStack() as stack:

        async def opened(one: str) -> Llm:
            return await stack.enter_async_context(open_llm(one, settings.threads(), placement))

        llm = await opened(settings.llm)
        prefills = getattr(llm, "prefills", False)
        answers = Failover([Candidate(spec, llm, PATIENT_SECONDS, prefills, PATIENT_SECONDS)])
        writer = await opened(language_model(opener)) if opener else None
        for number, question in enumerate(questions):
            asked = question.turns[-1]
            history = History.of(options, llm)
            messages = history.messages(asked)
            alone = await _whole(answers, Request(messages, spoken=True), options.max_tokens)
            said = await ask_opening(writer, asked) if writer else ""
            said = said or phrase(phrases[number % len(phrases) :][:1], messages)
            request = Request(messages, spoken=True, given=said, go_on=OPENED)
            rest = await _whole(answers, request, options.max_tokens)
            right, right_alone = (is_right(question, text, normalise) for text in (rest, alone))
            found.append(Join(asked, said, rest, join_faults(said, rest), right, right_alone))
            done()
    return found


async def _whole(answers: Failover, request: Request, max_tokens: int) -> str:
    pieces = list[str]()
    async with aclosing(filtered(answers.stream(request), AnswerFilter(max_tokens))) as words:
        async for piece in words:
            pieces.append(str(piece))  # without tools all are words
    return "".join(pieces).strip()


def faults_of(found: Sequence[Join]) -> Counter[str]:
    """Return how often each fault was found."""
    return Counter(fault for join in found for fault in join.faults)


async def waits(
    pairs: int, late_s: float, after_s: float, phrases: Sequence[str], done: Callable[[], None]
) -> list[tuple[float, float]]:
    """Return the milliseconds to the first audio of each pair of replies: without and with openings.

    late_s: when the model's first word comes, in seconds. after_s: the setting ``opening_after_s``. The voice
    is the default one. done: called after each pair. Raises PipelineError if a reply has no audio. Cancelling
    ends the servers.
    """
    found = list[tuple[float, float]]()
    async with AsyncExitStack() as stack:
        chat = await stack.enter_async_context(faulty_chat())
        chat.first_token_s = late_s
        given = {"REJOINDER_OPENINGS": json.dumps(list(phrases)), "REJOINDER_OPENING_AFTER_S": str(after_s)}
        plain = await stack.enter_async_context(_called(chat.url, {}))
        opened = await stack.enter_async_context(_called(chat.url, given))
        for number in range(UNCOUNTED_PAIRS + pairs):
            pair = await first_audio_ms(plain), await first_audio_ms(opened)
            if number >= UNCOUNTED_PAIRS:
                found.append(pair)
                done()
    return found


def percentiles(found: Sequence[tuple[float, float]]) -> tuple[Sequence[float], Sequence[float]]:
    """Return p50, p95 and p99 of the waits without openings, and of those with them."""
    without, opened = np.percentile(np.array(found), (50, 95, 99), axis=0).T
    return list(map(float, without)), list(map(float, opened))


@asynccontextmanager
async def _called(url: str, more: dict[str, str]) -> AsyncIterator[ClientConnection]:
    """Serve with the chat server as the language model, and call that server."""
    limits = ("first_token_s", "first_clause_s", "between_tokens_s")
    table = {"url": url, "model": "late", **dict.fromkeys(limits, PATIENT_SECONDS)}
    models = {"VAD": "scripted:vad", "TURN": "", "STT": "scripted:stt", "LLM": "late"}
    environment = {f"REJOINDER_{role}": spec for role, spec in models.items()}
    environment |= {"REJOINDER_MODELS": json.dumps({"late": table}), **more}
    async with own_server({}, None, environment) as address:
        root = address.partition("/v1/")[0]
        async with connect(f"{root}/v1/realtime?model=default", proxy=None, compression=None) as socket:
            await event_of(socket, "conversation.created")
            yield socket
