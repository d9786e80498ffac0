"""Runs the stages of one reply, and reports how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rejoinder.pipeline.caching.answers import CachedAnswer
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.context.tokens import ENTRY_TOKENS, estimated
from rejoinder.pipeline.engines.deadline import current
from rejoinder.pipeline.errors import ProtocolError, first_error
from rejoinder.pipeline.events import Event, ReplyDone
from rejoinder.pipeline.guarding.guarding import Guarding
from rejoinder.pipeline.interfaces import Llm, Message, Usage
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.retrieval import Lookup
from rejoinder.pipeline.replying.stages import SpokenSlice, play, replay, speak, think, write
from rejoinder.pipeline.upstream import upstream

CLAUSES_AHEAD = 2
"""Most clauses that wait for the voice."""
AUDIO_AHEAD = 8
"""Most slices of audio that wait for the play stage: with ``SLICE_SECONDS``, about a third of a second."""


LastStage = Callable[[Reply, Channel[SpokenSlice], Channel[Event]], Coroutine[Any, Any, None]]
"""What takes the audio of a reply: ``play``, or ``collect`` for an answer that is made in advance."""


async def attempt(
    reply: Reply,
    models: Models,
    out: Channel[Event],
    warming: asyncio.Task[None] | None = None,
    last: LastStage = play,
) -> BaseException | None:
    """Run the stages of a reply until all of it is sent; return the error that ended them, None without one.

    warming: a task that fills the language model's cache, which is awaited first. last: takes the audio.
    Cancelling discards everything in flight.
    """
    current.set(reply.output.deadline)
    upstream.set(reply.upstream)
    reply.upstream.language = getattr(models.stt, "language", "")
    reply.upstream.load = models.load_shedder.load.busy
    reply.upstream.budget = reply.settings.budget
    try:
        if found := await reply.cached():
            await _play_again(reply, found, out)
            return None
        if reply.settings.asks:
            reply.generation.begin()
        if lookup := reply.generation.lookup:
            await _inform(reply, lookup)
        if warming and reply.settings.asks:
            await asyncio.wait([warming])
        if reply.settings.speaks:
            await _speak(reply, models, out, last)
        elif guard := reply.settings.guard:
            await reply.generation.count_prompt(models.llm)
            await Guarding(reply, guard, out).write(models.llm)
        else:
            await reply.generation.count_prompt(models.llm)
            await write(reply, models.llm, out)
    except Exception as error:
        return first_error(error)
    finally:
        _spend(reply, models.llm)
    return reply.outcome.excused


def _spend(reply: Reply, llm: Llm) -> None:
    """Count the tokens of a reply whose model does not report them."""
    budget, generation = reply.settings.budget, reply.generation
    if budget and not reply.upstream.counted and generation.tokens:
        usage = generation.usage(llm) or Usage(sum(map(_tokens, generation.messages)), generation.tokens)
        budget.spend(usage.read + usage.written)


def _tokens(message: Message) -> int:
    return estimated(message["content"]) + ENTRY_TOKENS


async def _inform(reply: Reply, lookup: Lookup) -> None:
    """Put into the prompt what was retrieved, once it is there, or do without after the longest wait."""
    if not lookup.task.done():
        await lookup.wait(reply.settings.context_wait_s)
        reply.mark("context")
    reply.generation.inform(lookup.text)
    reply.trace.found = lookup.text
    reply.trace.count({"context_ms": lookup.seconds * 1000.0} if lookup.task.done() else {"context_late": 1})


async def _speak(reply: Reply, models: Models, out: Channel[Event], last: LastStage) -> None:
    reply.clauses = clauses = Channel[str](CLAUSES_AHEAD, "clauses")
    audio: Channel[SpokenSlice] = Channel(AUDIO_AHEAD, "audio")
    guarding = Guarding(reply, reply.settings.guard, out) if reply.settings.guard else None
    allowed, vetted = (guarding.allowed, guarding.vetted) if guarding else (clauses, audio)
    async with asyncio.TaskGroup() as tasks:
        thinking = tasks.create_task(think(reply, models.llm, clauses))
        speaking = tasks.create_task(speak(reply, models.tts, allowed, audio))
        speaking.add_done_callback(lambda _: thinking.cancel())  # the voice may have reached the limit
        if guarding:
            guarding.start(tasks, models.tts, clauses, audio, thinking, speaking)
        reply.own(tasks.create_task(last(reply, vetted, out)))


async def _play_again(reply: Reply, found: CachedAnswer, out: Channel[Event]) -> None:
    audio: Channel[SpokenSlice] = Channel(AUDIO_AHEAD, "audio")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(replay(reply, found, audio))
        reply.own(tasks.create_task(play(reply, audio, out)))


def reply_done(reply: Reply, llm: Llm, played: float) -> ReplyDone:
    """Return the ReplyDone event of a reply that has ended, of which ``played`` seconds were played."""
    status, error = reply.outcome.status, reply.outcome.error
    usage = reply.upstream.usage or reply.generation.usage(llm)
    heard, refused = reply.output.heard(played), reply.outcome.refused
    done = ReplyDone(reply.id, status, heard, usage=usage, played=played, trace=reply.trace, refused=refused)
    if error is None:
        return done
    code = (error.code if isinstance(error, ProtocolError) else "") or ""
    return replace(done, error=str(error) or type(error).__name__, code=code, cause=error)
