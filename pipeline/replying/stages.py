"""The stages of a spoken reply (think, speak, play), and the one stage of a reply in text only (write)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import current
from rejoinder.pipeline.errors import ModelError, ProtocolError, asking, first_error
from rejoinder.pipeline.events import Event, ReplyAudio, ReplyDone, ReplyText, TurnTraced
from rejoinder.pipeline.interfaces import Llm, Message, TokenLlm, ToolCall, ToolLlm, Tts, Usage
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.prompt import is_long
from rejoinder.pipeline.replying.clauses import ClauseSplitter
from rejoinder.pipeline.replying.playout import spread
from rejoinder.pipeline.replying.turn import Turn
from rejoinder.pipeline.replying.utterance import uttered

CLAUSES_AHEAD = 2
"""Most clauses that wait for the voice."""
AUDIO_AHEAD = 8
"""Most slices of audio that wait for the play stage: with ``SLICE_SECONDS``, about a third of a second."""
SLICE_SECONDS = 0.04
"""Duration of a slice of audio."""
BRIEF_TOKENS = 16
"""Under load (``LoadLevel.LENGTH``), a reply of at least this many tokens ends with its sentence."""
SENTENCE_ENDS = (".", "!", "?")
"""The characters that end a sentence."""
CONTROL_PLACES = 64
"""Places in a session's event channel that audio leaves free for events that cannot wait."""

Spoken = tuple[str, AudioChunk, Words]
"""The clause that begins, or ""; a slice of its audio; and the times of its words."""


async def attempt(
    turn: Turn,
    models: Models,
    messages: Sequence[Message],
    out: Channel[Event],
    warming: asyncio.Task[None] | None = None,
) -> str:
    """Run a reply to its end and return its status: completed, incomplete or failed.

    An exception of a model ends here, in ``turn.cause``. warming: a task that fills the language model's
    cache, which is awaited first. Cancelling discards everything in flight.
    """
    current.set(turn.deadline)
    try:
        if turn.refused is not None:
            raise turn.refused
        if not turn.words:  # given words do not use the language model
            turn.prompt = messages
        if warming:
            await asyncio.wait([warming])
        if isinstance(models.llm, TokenLlm) and is_long(messages):
            with asking("language model"):
                turn.read = await asyncio.to_thread(models.llm.count, messages)
        await reply(turn, models.llm, models.tts, messages, out)
    except Exception as error:
        turn.cause = first_error(error)
        return "failed"
    return "incomplete" if turn.shortened else "completed"


def over(turn: Turn, llm: Llm, status: str, played: float) -> ReplyDone:
    """Return the ReplyDone event of a reply of which ``played`` seconds were played."""
    done = ReplyDone(turn.id, status, turn.heard(played), usage=usage(turn, llm))
    if status != "failed" or (cause := turn.cause) is None:
        return done
    code = (cause.code if isinstance(cause, ProtocolError) else "") or ""
    return replace(done, error=str(cause) or type(cause).__name__, code=code, cause=cause)


def usage(turn: Turn, llm: Llm) -> Usage | None:
    """Return the tokens used so far; None if the language model does not count them or fails to."""
    if turn.prompt is None or not isinstance(llm, TokenLlm):
        return None
    if turn.read is None and not is_long(turn.prompt):
        with suppress(ModelError):
            turn.read = llm.count(turn.prompt)
    return None if turn.read is None else Usage(turn.read, turn.tokens)


async def reply(turn: Turn, llm: Llm, tts: Tts, messages: Sequence[Message], out: Channel[Event]) -> None:
    """Run the stages of one reply until all of it is sent. Cancelling discards everything in flight."""
    if not turn.speaks:
        await write(turn, llm, messages, out)
        return
    clauses: Channel[str] = Channel(CLAUSES_AHEAD, "clauses")
    audio: Channel[Spoken] = Channel(AUDIO_AHEAD, "audio")
    async with asyncio.TaskGroup() as tasks:
        thinking = tasks.create_task(think(turn, llm, messages, clauses))
        speaking = tasks.create_task(speak(turn, tts, clauses, audio))
        speaking.add_done_callback(lambda _: thinking.cancel())  # the voice may have reached the limit
        turn.playing = tasks.create_task(play(turn, audio, out))


async def answer(turn: Turn, llm: Llm, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
    """Yield the words of the reply, up to its limits and without thoughts; collect tool calls in the turn.

    If the reply's words are given, the language model is not used. Raises ModelError if the model answers
    with thoughts only, or cannot call the tools. Closing the generator cancels the request.
    """
    if turn.words:
        yield turn.words
        return
    if not turn.tools.functions:
        pieces: AsyncGenerator[str | ToolCall, None] = llm.reply(messages)
    elif isinstance(llm, ToolLlm):
        pieces = llm.answer(messages, turn.tools)
    else:
        message = "this language model cannot call tools: remove the tools, or use a model with `answer`"
        raise ModelError(type(llm).__name__, message)
    with asking("language model"):
        async with aclosing(uttered(pieces, turn.utterance)) as words:
            async for piece in words:
                turn.mark("first_token")
                if isinstance(piece, ToolCall):
                    turn.calls.append(piece)
                    if not turn.tools.parallel:  # a server may ignore the setting
                        return
                else:
                    yield piece
                    long = turn.utterance.tokens >= BRIEF_TOKENS
                    if turn.brief and long and piece.rstrip()[-1:] in SENTENCE_ENDS:
                        return
    turn.shortened = turn.shortened or turn.utterance.shortened


async def write(turn: Turn, llm: Llm, messages: Sequence[Message], out: Channel[Event]) -> None:
    """Send the model's words as text, after the commit. Cancelling discards the rest."""
    async with aclosing(answer(turn, llm, messages)) as tokens:
        async for token in tokens:
            await turn.wait_committed()
            await turn.wait_running()
            await out.send(ReplyText(turn.id, token), CONTROL_PLACES)
            turn.written += token
            turn.deadline.due = None  # text has no play-out that could run dry
    turn.made = True


async def think(turn: Turn, llm: Llm, messages: Sequence[Message], out: Channel[str]) -> None:
    """Send the model's words as clauses. Cancelling closes the request to the model."""
    splitter = ClauseSplitter()
    async with aclosing(answer(turn, llm, messages)) as tokens:
        async for token in tokens:
            for clause in splitter.feed(token):
                turn.mark("first_clause")
                await out.send(clause)
    if rest := splitter.flush():
        turn.mark("first_clause")
        await out.send(rest)
    out.close()


async def speak(turn: Turn, tts: Tts, inp: Channel[str], out: Channel[Spoken]) -> None:
    """Turn clauses into slices of audio, until ``turn.max_seconds``. Cancelling stops the voice."""
    position = 0
    async for clause in inp:
        if turn.max_seconds and turn.seconds_made >= turn.max_seconds:
            turn.shortened = True
            break
        text, made = clause, 0.0
        with asking("voice"):
            async with aclosing(tts.speak(clause)) as chunks:
                async for chunk in chunks:
                    turn.mark("first_audio")
                    made += chunk.seconds
                    turn.make(chunk.seconds)
                    words = chunk.words or spread(clause, made)
                    for piece in chunk.slices(int(SLICE_SECONDS * chunk.rate)):
                        await out.send((text, AudioChunk(piece.pcm, piece.rate, position), words))
                        position += len(piece)
                        text = ""
    turn.made = True
    out.close()


async def play(turn: Turn, inp: Channel[Spoken], out: Channel[Event]) -> None:
    """Send the audio at the pace of play-out, after the commit and while the reply is not paused.

    Cancelling sends nothing more.
    """
    await turn.wait_committed()
    async for text, chunk, words in inp:
        await turn.wait_running()
        if text:
            turn.playout.begin(text)
            await out.send(ReplyText(turn.id, text), CONTROL_PLACES)
        await out.send(ReplyAudio(turn.id, chunk), CONTROL_PLACES)
        ahead = turn.sent(text, chunk, words)
        if "audio_sent" not in turn.trace.marks:
            turn.mark("audio_sent")
            await out.send(TurnTraced(turn.trace), CONTROL_PLACES)
        await asyncio.sleep(ahead)
    turn.playout.end()
