"""The stages of a spoken reply (think, speak, play; fill before them), and of one in text only (write)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.caching.answers import CachedAnswer
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import ModelError, Overloaded, asking
from rejoinder.pipeline.events import Event, ReplyAudio, ReplyText, TurnTraced
from rejoinder.pipeline.interfaces import Llm, ToolCall, ToolLlm, Tts
from rejoinder.pipeline.replying.playout import spread
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.text.answer_filter import filtered
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter, clauses_of

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.04
"""Duration of a slice of audio."""
EARLY_END_TOKENS = 16
"""Under load (``LoadLevel.LENGTH``), a reply of at least this many tokens ends with its sentence."""
SENTENCE_ENDS = (".", "!", "?")
"""The characters that end a sentence."""
CONTROL_PLACES = 64
"""Places in a session's event channel that audio leaves free for events that cannot wait."""

SpokenSlice = tuple[str, AudioChunk, Words]
"""The clause that begins, or ""; a slice of its audio; and the times of its words."""


async def answer(reply: Reply, llm: Llm) -> AsyncGenerator[str, None]:
    """Yield the words of the reply, up to its limits and without thoughts; record its tool calls.

    If the reply's words are given, the language model is not used. Raises ModelError if the model fails, in
    whatever way, answers with thoughts only, or cannot call the tools. Closing the generator cancels the
    request.
    """
    if reply.settings.words:
        yield reply.settings.words
        return
    generation, tools, trace = reply.generation, reply.settings.tools, reply.trace
    clock, asked = asyncio.get_running_loop().time, 0.0
    with asking("language model", llm):
        async with aclosing(filtered(_request(reply, llm), generation.filter)) as words:
            async for piece in words:
                reply.mark("first_token")
                trace.tokens += 1
                trace.until = clock()
                trace.waited += trace.until - asked if asked else 0.0
                if isinstance(piece, ToolCall):
                    generation.add_call(piece)
                    if not tools.parallel:  # a server may ignore the setting
                        return
                else:
                    yield piece
                    asked = clock()
                    long = generation.filter.tokens >= EARLY_END_TOKENS
                    if generation.ends_early and long and piece.rstrip()[-1:] in SENTENCE_ENDS:
                        return
    if generation.filter.shortened:
        reply.outcome.shorten()


def _request(reply: Reply, llm: Llm) -> AsyncGenerator[str | ToolCall, None]:
    if not reply.settings.tools.functions:
        return llm.reply(reply.generation.messages)
    if isinstance(llm, ToolLlm):
        return llm.answer(reply.generation.messages, reply.settings.tools)
    message = "this language model cannot call tools: remove the tools, or use a model with `answer`"
    raise ModelError(type(llm).__name__, message)


async def write(reply: Reply, llm: Llm, out: Channel[Event]) -> None:
    """Send the model's words as text, after the commit. Cancelling discards the rest."""
    async with aclosing(answer(reply, llm)) as tokens:
        async for token in tokens:
            await reply.gate.wait_committed()
            await reply.gate.wait_running()
            await out.send(ReplyText(reply.id, token), CONTROL_PLACES)
            reply.output.add_text(token)
    reply.output.end()


async def think(
    reply: Reply, llm: Llm, out: Channel[str], prepare: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Send the model's words as clauses; where it fails, an apology in place of the rest, if there is one.

    The words that complete no clause are dropped then. prepare: waits until the model can be asked; a failure
    of the model in it counts as well. Cancelling closes the request to the model.
    """
    splitter = ClauseSplitter()
    try:
        if prepare:
            await prepare()
        async with aclosing(answer(reply, llm)) as tokens:
            async for token in tokens:
                reply.generation.write(token)
                clauses = splitter.feed(token)
                if reply.upstream.take_break():
                    clauses.append(splitter.cut())
                for clause in filter(None, clauses):
                    reply.mark("first_clause")
                    await out.send(clause)
        last = [splitter.flush()]
        reply.generation.end()
    except (ModelError, Overloaded) as error:
        begun = "first_clause" in reply.trace.marks
        apology = reply.settings.cut_apology if begun else reply.settings.apology
        last = clauses_of(apology)
        if not last:
            raise
        reply.mark("apology")
        reply.outcome.excuse(error)
    for clause in filter(None, last):
        reply.mark("first_clause")
        await out.send(clause)
    out.close()


async def speak(reply: Reply, tts: Tts, inp: Channel[str], out: Channel[SpokenSlice]) -> None:
    """Turn clauses into slices of audio, up to ``max_seconds``. Cancelling stops the voice."""
    position, most = 0, reply.settings.max_seconds
    async for clause in inp:
        if most and reply.output.synthesised >= most:
            reply.outcome.shorten()
            break
        text, seconds = clause, 0.0
        with asking("voice"):
            async with aclosing(tts.speak(clause)) as chunks:
                async for chunk in chunks:
                    reply.mark("first_audio")
                    seconds += chunk.seconds
                    reply.output.add_synthesised(chunk.seconds)
                    words = chunk.words or spread(clause, seconds)
                    for piece in chunk.slices(int(SLICE_SECONDS * chunk.rate)):
                        await out.send((text, AudioChunk(piece.pcm, piece.rate, position), words))
                        position += len(piece)
                        text = ""
    reply.output.end()
    out.close()


async def recite(reply: Reply, recording: AudioChunk, out: Channel[SpokenSlice]) -> None:
    """Send a recording of the reply's words in slices, whatever its length. Cancelling stops it."""
    text = reply.settings.words
    words = spread(text, recording.seconds)
    for piece in recording.slices(int(SLICE_SECONDS * recording.rate)):
        reply.mark("first_audio")
        reply.output.add_synthesised(piece.seconds)
        await out.send((text, piece, words))
        text = ""
    reply.output.end()
    out.close()


async def replay(reply: Reply, answer: CachedAnswer, out: Channel[SpokenSlice]) -> None:
    """Send a cached answer in slices. Cancelling stops it."""
    position = 0
    reply.generation.write(" ".join(clause for clause, _ in answer.clauses))
    reply.generation.end()
    for clause, audio in answer.clauses:
        text = clause
        for piece in audio.slices(int(SLICE_SECONDS * audio.rate)):
            reply.mark("first_audio")
            reply.output.add_synthesised(piece.seconds)
            slice_ = AudioChunk(piece.pcm, piece.rate, position)
            await out.send((text, slice_, audio.words or spread(clause, audio.seconds)))
            position, text = position + len(piece), ""
    reply.output.end()
    out.close()


async def fill(reply: Reply, words: str, skip: float, tts: Tts, out: Channel[Event]) -> None:
    """Send the audio of a filler, at the pace of play-out and while the reply is not paused.

    skip: seconds to leave out. A voice that fails says no filler. Cancelling sends nothing more.
    """
    output, text = reply.output, words
    output.begin_filler(words, skip)
    try:
        async with aclosing(tts.speak(words)) as chunks:
            async for chunk in chunks:
                for piece in chunk.slices(int(SLICE_SECONDS * chunk.rate)):
                    if skip > 0.001:
                        skip -= piece.seconds
                        continue
                    await reply.gate.wait_running()
                    reply.mark("filler_sent")
                    sent = output.filler_chunk(piece)
                    await out.send(ReplyAudio(reply.id, sent), CONTROL_PLACES)
                    wait, text = output.sent_filler(text, sent), ""
                    await asyncio.sleep(wait)
    except (ModelError, Overloaded) as error:  # the answer itself reports the error
        log.warning("a filler was not spoken: %s", error)
    output.end_filler()


async def play(reply: Reply, inp: Channel[SpokenSlice], out: Channel[Event]) -> None:
    """Send the audio at the pace of play-out, after the commit and while the reply is not paused.

    Cancelling sends nothing more.
    """
    playout, filled = reply.output.playout, -1
    await reply.gate.wait_committed()
    async for text, chunk, words in inp:
        if filled < 0:
            filled = reply.answer()
        if filled:
            chunk = replace(chunk, start=chunk.start + filled)
        await reply.gate.wait_running()
        if text:
            playout.begin(text)
            await out.send(ReplyText(reply.id, text), CONTROL_PLACES)
        await out.send(ReplyAudio(reply.id, chunk), CONTROL_PLACES)
        wait = reply.output.sent(text, chunk, words)
        if reply.search and reply.search.question.first and not reply.search.found:
            reply.recording.add(text, chunk, words)
        if "audio_sent" not in reply.trace.marks:
            reply.mark("audio_sent")
            await out.send(TurnTraced(reply.trace), CONTROL_PLACES)
        await asyncio.sleep(wait)
    reply.stop_filler()  # a reply without words ends now, not with its filler
    playout.end()
