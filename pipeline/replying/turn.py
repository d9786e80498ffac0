"""One turn: the user's words, and a reply that may be thrown away until it is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.interfaces import NO_TOOLS, Message, ToolCall, Tools
from rejoinder.pipeline.replying.playout import Playout
from rejoinder.pipeline.replying.utterance import Utterance
from rejoinder.pipeline.trace import Trace


class Turn:
    """A reply in the making.

    id: counts the replies of a session from 1.
    text: the user's words it answers, None when it answers the history as it stands.
    tag: of what was asked for, 0 where nobody did.
    words: what it says, word for word, "" where the language model is asked for that.
    speaks: False for a reply that is written only. written: its text so far.
    tools: what it may call. calls: what it wants called, once it is over and was not cut.
    playout: what was sent and heard. echo: where it may be heard too, and should not.
    trace: when what happened. urgency: of what it asks the models for.
    guess: whether it was started before the user's turn was surely over.
    utterance: what of the model's answer is in it. max_seconds: of speech, after which no clause begins, 0
        for no such end. shortened: whether there would have been more after one of these ends.
    brief: whether the end of a sentence is the end of it once it is long.
    prompt: what it was asked, None before it runs.
    read: its tokens, None before they are counted. refused: why it is not asked at all.
    cause: why it failed, None where it did not.
    made: whether all of its audio was made, so that it is at its last words. seconds_made: of it so far.
    done: whether the end of the reply was told. failed: whether a model kept it from its end.
    overtaken: whether the user's own words stopped it.
    task, playing: what runs the reply, and the stage of it that sends.
    """

    def __init__(
        self,
        id: int,
        text: str | None,
        tag: int = 0,
        speaks: bool = True,
        tools: Tools | None = None,
        holds: bool = False,
        echo: Echo | None = None,
        max_tokens: int = 0,
        max_seconds: float = 0.0,
    ) -> None:
        self.id = id
        self.text = text
        self.tag = tag
        self.words = ""
        self.speaks = speaks
        self.written = ""
        self.tools = tools or NO_TOOLS
        self.calls: list[ToolCall] = []
        self.playout = Playout(holds)
        self.echo = echo
        self.trace = Trace(id, text or "")
        self.deadline = Deadline()
        self.guess = False
        self.utterance = Utterance(max_tokens)
        self.max_seconds = max_seconds
        self.brief = False
        self.prompt: Sequence[Message] | None = None
        self.read: int | None = None
        self.refused: PipelineError | None = None
        self.cause: BaseException | None = None
        self.shortened = False
        self.made = self.done = self.failed = self.overtaken = False
        self.seconds_made = 0.0
        self.task: asyncio.Task[None] | None = None
        self.playing: asyncio.Task[None] | None = None
        self._committed = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()

    @property
    def tokens(self) -> int:
        """Return how many tokens its language model has streamed, with those of its thoughts."""
        return self.utterance.tokens + self.utterance.hidden

    @property
    def committed(self) -> bool:
        """Tell whether the reply may be heard, remembered, billed and acted on."""
        return self._committed.is_set()

    def commit(self) -> None:
        """Open the gate."""
        self.mark("committed")
        self._committed.set()
        self._hurry()

    async def wait_committed(self) -> None:
        """Wait for the gate to open."""
        await self._committed.wait()

    def pause(self) -> None:
        """Hold the reply where it is: from this call on nothing of it is sent, and nothing of it is lost."""
        self._running.clear()
        self.deadline.due = None
        now = asyncio.get_running_loop().time()
        self.playout.pause(now)
        if self.echo and self.playout.holds:
            self.echo.hold(now)

    def resume(self) -> None:
        """Let a paused reply go on with the sample at which it stopped."""
        if not self._running.is_set():
            self._running.set()
            now = asyncio.get_running_loop().time()
            self.playout.resume(now)
            self._hurry()
            if self.echo:
                self.echo.release(now)

    async def wait_running(self) -> None:
        """Wait while the reply is paused."""
        await self._running.wait()

    def make(self, seconds: float) -> None:
        """Note that so much more of its audio was made."""
        self.seconds_made += seconds
        self._hurry()

    def _hurry(self) -> None:
        """Let more of it be due when all that was made of it has been heard."""
        if self.committed and self._running.is_set():
            now = asyncio.get_running_loop().time()
            self.deadline.due = now + self.playout.left(now) + self.seconds_made - self.playout.seconds

    def sent(self, text: str, chunk: AudioChunk, words: Words) -> float:
        """Note that audio was sent, and the clause that begins with it; return how long to wait with more.

        words: when the words of this clause are spoken, as known by now.
        """
        now = asyncio.get_running_loop().time()
        ahead = self.playout.sent(chunk.seconds, now, words)
        if self.echo:
            self.echo.play(chunk, now + self.playout.left(now) - chunk.seconds, text)
        return ahead

    def heard(self, played: float) -> str:
        """Return the text heard in the first ``played`` seconds; what was written was read."""
        return self.playout.text(played) if self.speaks else self.written.strip()

    async def sound_out(self) -> None:
        """Wait until what was sent has been heard."""
        await self._running.wait()
        while left := self.playout.left(asyncio.get_running_loop().time()):
            await asyncio.sleep(left)
            await self._running.wait()

    def cancel(self) -> None:
        """Stop the reply: from this call on nothing of it is sent."""
        for task in (self.task, self.playing):  # a task group would pass the cancel on one step too late
            if task is not None:
                task.cancel()

    def mark(self, name: str) -> None:
        """Note that ``name`` happened now."""
        self.trace.mark(name, asyncio.get_running_loop().time())
