"""A caller that follows a script: says each line after the reply to the previous line, or during it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rejoinder.agent.bench.callers.caller import LiveCaller
from rejoinder.agent.bench.callers.turns import HeardReply
from rejoinder.agent.bench.cases.recordings import speech_end
from rejoinder.agent.bench.latency import client_parts
from rejoinder.agent.bench.reports.waterfall import Parts
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.pipeline.audio.chunk import Samples

OPENING_SECONDS = 0.8
"""Silence before the first line."""
BETWEEN_SECONDS = 0.7
"""Silence between the end of a reply and the next line."""
FIRST_SOUND_SECONDS = 10.0
"""Longest wait for the first sound of a reply."""
LONGEST_REPLY_SECONDS = 30.0
"""Longest wait for the end of a reply."""


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A line of the caller.

    interrupts: seconds of the previous reply after which the caller says it; None: after the whole reply.
    """

    text: str
    interrupts: float | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A line of the caller and its reply.

    begin, end: first sample of the line, and the sample after its last speech, in the call. reply: None if
    the agent did not answer. first: the first audible sample of the reply, None if there is none.
    """

    line: ScriptLine
    begin: int
    end: int
    reply: HeardReply | None
    first: int | None

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds from the last sample of speech to the first audible sample of the reply."""
        return None if self.first is None else (self.first - self.end) * 1000 / CLIENT_RATE

    @property
    def parts(self) -> Parts:
        """The latency in parts; empty if the server does not send its trace."""
        if self.reply is None or self.latency_ms is None:
            return []
        return client_parts(self.reply, self.end, self.latency_ms)


async def converse(
    caller: LiveCaller, script: Sequence[ScriptLine], said: Sequence[Samples]
) -> list[Exchange]:
    """Say each line after the reply to the previous line, or during it. Returns what came of each line.

    said: audio of each line, mono float32 of shape (n,) at ``CLIENT_RATE``. Cancelling leaves the call open.
    """
    exchanges: list[Exchange] = []
    await caller.until(lambda: caller.now >= OPENING_SECONDS * CLIENT_RATE, OPENING_SECONDS + 1)
    for line, audio in zip(script, said, strict=True):
        if exchanges and exchanges[-1].reply is not None:
            await _listen(caller, exchanges[-1].reply, line.interrupts)
        begin = caller.say(audio)
        end = begin + speech_end(audio, CLIENT_RATE)
        await caller.until(partial(_is_answered, caller, end), len(audio) / CLIENT_RATE + FIRST_SOUND_SECONDS)
        exchanges.append(Exchange(line, begin, end, caller.answer(end), _first(caller, end)))
    if (reply := exchanges[-1].reply) is not None:
        await _listen(caller, reply, None)
    return exchanges


async def _listen(caller: LiveCaller, reply: HeardReply, seconds: float | None) -> None:
    """Wait until a reply and a short silence are over, or until ``seconds`` of it are played."""
    first = caller.player.first_audible(reply.item)

    def enough() -> bool:
        if seconds is not None and first is not None and caller.now >= first + seconds * CLIENT_RATE:
            return True
        return bool(reply.status) and caller.now >= caller.player.end + BETWEEN_SECONDS * CLIENT_RATE

    await caller.until(enough, LONGEST_REPLY_SECONDS)


def _is_answered(caller: LiveCaller, end: int) -> bool:
    return _first(caller, end) is not None


def _first(caller: LiveCaller, end: int) -> int | None:
    """Return the first audible sample of the answer to the words before ``end``, None before it is played."""
    reply = caller.answer(end)
    first = caller.player.first_audible(reply.item) if reply else None
    return first if first is not None and first <= caller.now else None
