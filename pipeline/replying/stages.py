"""The stages of a reply: think, speak and play; a reply in text only has one stage, write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.caching.answers import CachedAnswer
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import ModelError, Overloaded, asking
from rejoinder.pipeline.events import Event, ReplyAudio, ReplyText, TurnTraced
from rejoinder.pipeline.interfaces import Llm, ToolCall, ToolLlm, Tts
from rejoinder.pipeline.prompt import EMPTY_ANSWER, expects_words
from rejoinder.pipeline.replying.playout import spread
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.text.answer_filter import filtered
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter, clauses_of
from rejoinder.pipeline.replying.text.filler import Filler

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
    if reply.settings.failure:
        raise reply.settings.failure
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
                    long = generation.filter.tokens >= EARLY_END_TOKENS
                    if generation.ends_early and long and piece.rstrip()[-1:] in SENTENCE_ENDS:
                        return
                asked = clock()
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


async def think(reply: Reply, llm: Llm, out: Channel[str]) -> None:
    """Send the model's words as clauses; where it fails, an apology in place of the rest, if there is one.

    An answer to the user without any word is a failure, if there is an apology. The words that complete no
    clause are dropped then. Cancelling closes the request to the model.
    """
    splitter, kind = ClauseSplitter(), Filler if reply.settings.is_filler else str
    try:
        if reply.settings.asks:
            await reply.generation.count_prompt(llm)
        async with aclosing(answer(reply, llm)) as tokens:
            async for token in tokens:
                reply.generation.write(token)
                clauses = splitter.feed(token)
                if reply.upstream.take_break():
                    clauses.append(splitter.cut())
                for clause in filter(None, clauses):
                    reply.mark("first_clause")
                    await out.send(kind(clause))
        last = [splitter.flush()]
        silent = not last[0] and "first_clause" not in reply.trace.marks and not reply.generation.calls
        if silent and reply.settings.needs_words and expects_words(reply.generation.messages):
            raise ModelError("language model", EMPTY_ANSWER)
        reply.generation.end()
    except (ModelError, Overloaded) as error:
        begun = "first_clause" in reply.trace.marks
        last = clauses_of(reply.settings.cut_apology if begun else reply.settings.apology)
        if not last:
            raise
        reply.mark("apology")
        reply.outcome.excuse(error)
    for clause in filter(None, last):
        reply.mark("first_clause")
        await out.send(kind(clause))
    out.close()


async def speak(reply: Reply, tts: Tts, inp: Channel[str], out: Channel[SpokenSlice]) -> None:
    """Turn clauses into slices of audio, up to ``max_seconds``. Cancelling stops the voice."""
    most = reply.settings.max_seconds
    async for clause in inp:
        if most and reply.output.synthesised >= most:
            reply.outcome.shorten()
            break
        if not (isinstance(clause, Filler) and reply.has_answer):
            await speak_clause(reply, tts, clause, out)
    if not reply.settings.guard:  # whose sentence may follow
        reply.output.end()
    out.close()


async def speak_clause(reply: Reply, tts: Tts, clause: str, out: Channel[SpokenSlice]) -> None:
    """Turn one clause into slices of audio. Raises ModelError. Cancelling stops the voice."""
    text, seconds = clause, 0.0
    with asking("voice"):
        async with aclosing(tts.speak(clause)) as chunks:
            async for chunk in chunks:
                reply.mark("filler" if isinstance(clause, Filler) else "first_audio")
                seconds += chunk.seconds
                reply.output.add_synthesised(chunk.seconds)
                words = chunk.words or spread(clause, seconds)
                for piece in chunk.slices(int(SLICE_SECONDS * chunk.rate)):
                    await out.send((text, piece, words))
                    text = ""


async def replay(reply: Reply, answer: CachedAnswer, out: Channel[SpokenSlice]) -> None:
    """Send a cached answer in slices. Cancelling stops it."""
    reply.generation.write(" ".join(clause for clause, _ in answer.clauses))
    reply.generation.end()
    for clause, audio in answer.clauses:
        text, words = clause, audio.words or spread(clause, audio.seconds)
        for piece in audio.slices(int(SLICE_SECONDS * audio.rate)):
            reply.mark("first_audio")
            reply.output.add_synthesised(piece.seconds)
            await out.send((text, piece, words))
            text = ""
    reply.output.end()
    out.close()


async def play(reply: Reply, inp: Channel[SpokenSlice], out: Channel[Event]) -> None:
    """Send the audio at the pace of play-out, after the commit and while the reply is not paused.

    A filler ends with its current word once the answer is there. Cancelling sends nothing more.
    """
    playout, position, spoken = reply.output.playout, 0, 0.0
    fills = is_over = False
    await reply.gate.wait_committed()
    async for text, chunk, words in inp:
        await reply.gate.wait_running()
        if text:
            fills, spoken = isinstance(text, Filler), 0.0
        is_over = fills and (is_over or (reply.has_answer and _is_between_words(words, spoken)))
        if is_over:
            reply.output.add_synthesised(-chunk.seconds)
            continue
        chunk = AudioChunk(chunk.pcm, chunk.rate, position)
        position, spoken = position + len(chunk), spoken + chunk.seconds
        if text:
            playout.begin("" if fills else text)
            if not fills:
                await out.send(ReplyText(reply.id, text), CONTROL_PLACES)
        await out.send(ReplyAudio(reply.id, chunk), CONTROL_PLACES)
        wait = reply.output.sent(text, chunk, words)
        if not fills and reply.search and reply.may_be_kept:
            reply.recording.add(text, chunk, words)
        if not fills and "audio_sent" not in reply.trace.marks:
            reply.mark("audio_sent")
            await out.send(TurnTraced(reply.trace), CONTROL_PLACES)
        await asyncio.sleep(wait)
    playout.end()


async def collect(reply: Reply, inp: Channel[SpokenSlice], out: Channel[Event]) -> None:
    """Record the audio in place of ``play``, as fast as it comes, unheard. Cancelling stops that."""
    async for text, chunk, words in inp:
        reply.recording.add(text, chunk, words)


def _is_between_words(words: Words, seconds: float) -> bool:
    """Return whether no word has begun, or one ends within the slice in front of ``seconds``."""
    return not seconds or any(seconds - SLICE_SECONDS < end <= seconds for end, _ in words)
