"""One reply: its commit gate, its play-out and its outcome."""

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
    """A reply and its state. It can be dropped without a trace until it is committed.

    id: number of the reply in its session, from 1.
    text: the user's words that it answers, None if it answers the history as it stands.
    tag: that of its ``ReplyRequest``, 0 without one.
    words: given words to speak verbatim, "" if the language model writes them.
    speaks: False for a reply in text only. written: the text of such a reply so far.
    tools: the tools that it may call. calls: its tool calls; they run if it completes.
    playout: its play-out position. echo: receives its audio for echo removal, None if that is off.
    trace: the times of its steps. deadline: how soon the models' work for it is needed.
    guess: whether it started before the user's turn was surely over.
    utterance: filters and limits the model's answer.
    max_seconds: seconds of speech after which no clause begins, 0 for no limit.
    shortened: whether one of these limits cut it short.
    brief: whether it ends with a sentence once it has ``BRIEF_TOKENS``, to save time under load.
    prompt: the messages sent to the model, None before that. read: their tokens, None until counted.
    refused: an error that prevents the request to the model. cause: the error that ended it.
    made: whether all of its audio is synthesised. seconds_made: seconds of audio synthesised so far.
    done: whether its ReplyDone was emitted. failed: whether a model failed.
    overtaken: whether the user's speech cancelled it.
    task: runs the reply. playing: the task of its play stage.
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
        """The tokens that the language model has streamed, thoughts included."""
        return self.utterance.tokens + self.utterance.hidden

    @property
    def committed(self) -> bool:
        """Whether the reply may be heard, remembered, billed and acted on."""
        return self._committed.is_set()

    def commit(self) -> None:
        """Open the commit gate."""
        self.mark("committed")
        self._committed.set()
        self._hurry()

    async def wait_committed(self) -> None:
        """Wait for the commit. Cancelling changes nothing."""
        await self._committed.wait()

    def pause(self) -> None:
        """Pause the reply: nothing of it is sent until ``resume``, and nothing is lost."""
        self._running.clear()
        self.deadline.due = None
        now = asyncio.get_running_loop().time()
        self.playout.pause(now)
        if self.echo and self.playout.holds:
            self.echo.hold(now)

    def resume(self) -> None:
        """Resume a paused reply at the sample where it paused."""
        if not self._running.is_set():
            self._running.set()
            now = asyncio.get_running_loop().time()
            self.playout.resume(now)
            self._hurry()
            if self.echo:
                self.echo.release(now)

    async def wait_running(self) -> None:
        """Wait while the reply is paused. Cancelling changes nothing."""
        await self._running.wait()

    def make(self, seconds: float) -> None:
        """Record that this many more seconds of audio are synthesised."""
        self.seconds_made += seconds
        self._hurry()

    def _hurry(self) -> None:
        """Set the deadline for more audio: the time at which the synthesised audio runs out."""
        if self.committed and self._running.is_set():
            now = asyncio.get_running_loop().time()
            self.deadline.due = now + self.playout.left(now) + self.seconds_made - self.playout.seconds

    def sent(self, text: str, chunk: AudioChunk, words: Words) -> float:
        """Record that audio was sent; return the seconds to wait before sending more.

        text: the clause that begins with this audio, or "". words: the times of the clause's words, as far
        as they are known.
        """
        now = asyncio.get_running_loop().time()
        ahead = self.playout.sent(chunk.seconds, now, words)
        if self.echo:
            self.echo.play(chunk, now + self.playout.left(now) - chunk.seconds, text)
        return ahead

    def heard(self, played: float) -> str:
        """Return the text heard in the first ``played`` seconds; for a reply in text only, all of it."""
        return self.playout.text(played) if self.speaks else self.written.strip()

    async def wait_played(self) -> None:
        """Wait until all audio that was sent has been played. Cancelling changes nothing."""
        await self._running.wait()
        while left := self.playout.left(asyncio.get_running_loop().time()):
            await asyncio.sleep(left)
            await self._running.wait()

    def cancel(self) -> None:
        """Cancel the reply: nothing more of it is sent."""
        for task in (self.task, self.playing):  # a task group would cancel the play stage one step too late
            if task is not None:
                task.cancel()

    def mark(self, name: str) -> None:
        """Record in the trace that ``name`` happened now."""
        self.trace.mark(name, asyncio.get_running_loop().time())
