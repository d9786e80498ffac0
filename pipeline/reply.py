"""The three stages of a reply: think, speak, play."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from rejoinder.pipeline.audio import AudioChunk, Words
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.clauses import ClauseSplitter
from rejoinder.pipeline.events import Event, ReplyAudio, ReplyText, TurnTraced
from rejoinder.pipeline.interfaces import Llm, Message, Tts
from rejoinder.pipeline.playout import spread
from rejoinder.pipeline.turn import Turn

CLAUSES_AHEAD = 2
AUDIO_AHEAD = 8
"""Slices of audio made ahead of the play stage: with ``SLICE_SECONDS`` about a third of a second."""
SLICE_SECONDS = 0.04
CONTROL_PLACES = 64
"""Places in a session's outgoing channel that audio leaves free for events, which cannot wait."""

Spoken = tuple[str, AudioChunk, Words]
"""The clause that begins or an empty text, a slice of its audio, and when its words are spoken."""


async def reply(turn: Turn, llm: Llm, tts: Tts, messages: Sequence[Message], out: Channel[Event]) -> None:
    """Run one reply until all of its audio is sent. Cancelling discards everything in flight."""
    clauses: Channel[str] = Channel(CLAUSES_AHEAD, "clauses")
    audio: Channel[Spoken] = Channel(AUDIO_AHEAD, "audio")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(think(turn, llm, messages, clauses))
        tasks.create_task(speak(turn, tts, clauses, audio))
        turn.playing = tasks.create_task(play(turn, audio, out))


async def think(turn: Turn, llm: Llm, messages: Sequence[Message], out: Channel[str]) -> None:
    """Turn the model's tokens into clauses."""
    splitter = ClauseSplitter()
    async with aclosing(llm.reply(messages)) as tokens:
        async for token in tokens:
            turn.mark("first_token")
            turn.tokens += 1
            for clause in splitter.feed(token):
                turn.mark("first_clause")
                await out.send(clause)
    if rest := splitter.flush():
        turn.mark("first_clause")
        await out.send(rest)
    out.close()


async def speak(turn: Turn, tts: Tts, inp: Channel[str], out: Channel[Spoken]) -> None:
    """Turn clauses into slices of audio."""
    position = 0
    async for clause in inp:
        text, made = clause, 0.0
        async with aclosing(tts.speak(clause)) as chunks:
            async for chunk in chunks:
                turn.mark("first_audio")
                made += chunk.seconds
                words = chunk.words or spread(clause, made)
                for piece in chunk.slices(int(SLICE_SECONDS * chunk.rate)):
                    await out.send((text, AudioChunk(piece.pcm, piece.rate, position), words))
                    position += len(piece)
                    text = ""
    turn.made = True
    out.close()


async def play(turn: Turn, inp: Channel[Spoken], out: Channel[Event]) -> None:
    """Send the audio at the pace at which it is heard; the first line is the gate, a pause another one."""
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
