"""Runs the stages of one reply, and reports how it ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import current
from rejoinder.pipeline.errors import ProtocolError, first_error
from rejoinder.pipeline.events import Event, ReplyDone
from rejoinder.pipeline.guarding.guarding import Guarding
from rejoinder.pipeline.interfaces import Llm
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.stages import SpokenSlice, fill, play, recite, replay, speak, think, write
from rejoinder.pipeline.replying.upstream import upstream

CLAUSES_AHEAD = 2
"""Most clauses that wait for the voice."""
WARM_WAIT_S = 1.5
"""Longest wait for a request that fills the language model's cache, in seconds: a server that hangs must not
hold up its own deadline."""
AUDIO_AHEAD = 8
"""Most slices of audio that wait for the play stage: with ``SLICE_SECONDS``, about a third of a second."""


async def attempt(
    reply: Reply, models: Models, out: Channel[Event], warming: asyncio.Task[None] | None = None
) -> BaseException | None:
    """Run the stages of a reply until all of it is sent; return the error that ended them, None without one.

    warming: a task that fills the language model's cache. A reply that uses the model waits for it first.
    Cancelling discards everything in flight.
    """
    current.set(reply.output.deadline)
    upstream.set(reply.upstream)
    reply.upstream.key, reply.upstream.recogniser = reply.settings.key, models.specs.get("stt", "")
    reply.upstream.load, reply.upstream.speaks = models.load_shedder.load.busy, reply.settings.speaks
    try:
        if reply.settings.speaks:
            await _speak(reply, models, out, warming)
        else:
            await _prepare(reply, models, warming)
            if reply.settings.guard:
                await Guarding(reply, reply.settings.guard, out).write(models.llm)
            else:
                await write(reply, models.llm, out)
    except Exception as error:
        return first_error(error)
    return reply.outcome.excused


async def _prepare(reply: Reply, models: Models, warming: asyncio.Task[None] | None) -> None:
    """Wait until the language model can begin.

    Raises ProtocolError where its request is refused, and the failure that the reply was requested with.
    """
    if reply.settings.failure:
        raise reply.settings.failure
    if reply.settings.words:  # given words do not use the language model
        return
    if reply.generation.waits:
        await reply.generation.wait_prompt()
    reply.generation.begin()
    await reply.add_context()
    if warming:
        await asyncio.wait([warming], timeout=WARM_WAIT_S)
    await reply.generation.count_prompt(models.llm)


async def _speak(
    reply: Reply, models: Models, out: Channel[Event], warming: asyncio.Task[None] | None
) -> None:
    clauses: Channel[str] = Channel(CLAUSES_AHEAD, "clauses")
    audio: Channel[SpokenSlice] = Channel(AUDIO_AHEAD, "audio")

    def filling(words: str, skip: float) -> asyncio.Task[None] | None:
        if playing.done() or playing.cancelling():
            return None
        return tasks.create_task(urgently(words, skip))

    async def urgently(words: str, skip: float) -> None:
        current.set(reply.output.deadline)  # the task begins in the context of who asks for the filler
        await fill(reply, words, skip, models.tts, out)

    answer = await reply.cached()
    async with asyncio.TaskGroup() as tasks:
        if reply.settings.audio:
            tasks.create_task(recite(reply, reply.settings.audio, audio))
        elif answer:
            tasks.create_task(replay(reply, answer, audio))
        if reply.settings.audio or answer:
            reply.own(tasks.create_task(play(reply, audio, out)))
            return
        guard = reply.settings.guard
        guarding = Guarding(reply, guard, out) if guard else None
        allowed, vetted = (guarding.allowed, guarding.vetted) if guarding else (clauses, audio)
        thinking = tasks.create_task(
            think(reply, models.llm, clauses, partial(_prepare, reply, models, warming))
        )
        speaking = tasks.create_task(speak(reply, models.tts, allowed, audio))
        speaking.add_done_callback(lambda _: thinking.cancel())  # the voice may have reached the limit
        playing = tasks.create_task(play(reply, vetted, out))
        if guarding:
            guarding.start(tasks, models.tts, clauses, audio, thinking, speaking)
        reply.own(playing)
        reply.can_fill(filling)


def reply_done(reply: Reply, llm: Llm, played: float) -> ReplyDone:
    """Return the ReplyDone event of a reply that has ended, of which ``played`` seconds were played."""
    status, error = reply.outcome.status, reply.outcome.error
    calls = len(reply.generation.calls) if status == "completed" else 0
    heard, usage = reply.output.heard(played), reply.usage(llm)
    refused, spent = reply.outcome.refused, reply.spent(usage)
    done = ReplyDone(
        reply.id, status, heard, usage=usage, calls=calls, refused=refused, trace=reply.trace, spent=spent
    )
    if error is None:
        return done
    code = (error.code if isinstance(error, ProtocolError) else "") or ""
    return replace(done, error=str(error) or type(error).__name__, code=code, cause=error)
