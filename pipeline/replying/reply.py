"""One reply of the agent: its parts, and the verbs that concern several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping

from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.caching.answers import CachedAnswer
from rejoinder.pipeline.caching.recording import AnswerRecording
from rejoinder.pipeline.caching.search import Search
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.interfaces import Llm, Usage
from rejoinder.pipeline.options import ReplyRequest
from rejoinder.pipeline.replying.commit_gate import CommitGate
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.output import Output
from rejoinder.pipeline.replying.playout import Playout
from rejoinder.pipeline.replying.reply_outcome import ReplyOutcome
from rejoinder.pipeline.replying.reply_settings import ReplySettings
from rejoinder.pipeline.replying.upstream import Upstream
from rejoinder.pipeline.trace import Trace


class Reply:
    """One reply. It can be dropped without a trace until it is committed.

    id: number of the reply in its session, from 1.
    text: the user's words that it answers, "" if it answers the history as it stands.
    is_guess: whether it started before the user's turn was surely over.
    settings: what was asked of it, with the session's settings. request: what was asked of it alone.
    generation: the language model's part.
    gate: what its stages wait for before they send. output: what the client receives.
    search: looks for the answer in a cache, None for no cache.
    recording: of its audio, for the cache.
    outcome: how it ends. trace: the times of its steps, which begin with ``marks``.
    upstream: takes what the language model reports about it.
    """

    def __init__(
        self,
        id: int,
        text: str = "",
        settings: ReplySettings | None = None,
        generation: Generation | None = None,
        deadline: Deadline | None = None,
        listeners: Listeners | None = None,
        is_guess: bool = False,
        marks: Mapping[str, float] | None = None,
        request: ReplyRequest | None = None,
    ) -> None:
        self.id = id
        self.request = request or ReplyRequest()
        self.text = text
        self.is_guess = is_guess
        self.settings = settings or ReplySettings()
        self.generation = generation or Generation()
        self.gate = CommitGate()
        playout = Playout(self.settings.holds_audio)
        self.output = Output(self.gate, playout, deadline or Deadline(), listeners, id)
        self.search: Search | None = None
        self.recording = AnswerRecording()
        self.outcome = ReplyOutcome()
        self.trace = Trace(id, text, dict(marks or {}))
        self.upstream = Upstream(self.trace)
        self._tasks: list[asyncio.Task[None]] = []
        self._filling: Callable[[str, float], asyncio.Task[None] | None] | None = None
        self._wanted: tuple[str, float] | None = None
        self._filler: asyncio.Task[None] | None = None

    @property
    def committed(self) -> bool:
        """Whether the reply may be heard, remembered and acted on."""
        return self.gate.committed

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs the reply; None before ``start``."""
        return self._tasks[0] if self._tasks else None

    def start(self, run: Coroutine[None, None, None], name: str) -> None:
        """Run the coroutine in a new task, which ``cancel`` cancels."""
        self._tasks = [asyncio.create_task(run, name=name)]

    def own(self, task: asyncio.Task[None]) -> None:
        """Cancel this task together with the reply, not one step later as its task group would."""
        self._tasks.append(task)

    def fill(self, words: str, skip: float = 0.0) -> bool:
        """Speak a filler until the answer's first audio is ready; return whether one can be spoken now.

        skip: seconds of its audio to leave out.
        """
        fits = self.committed and self.settings.speaks and not self.settings.words
        busy = self.output.answering or self.outcome.ended or (self._filler and not self._filler.done())
        if not fits or busy:
            return False
        self._wanted = words, skip
        return self._fill()

    def can_fill(self, filling: Callable[[str, float], asyncio.Task[None] | None]) -> None:
        """Take the function that starts the task of a filler; it returns None once that is too late."""
        self._filling = filling
        self._fill()

    def _fill(self) -> bool:
        if self._filling is None or self._wanted is None:
            return True  # ``can_fill`` comes with the first step of the task
        wanted, self._wanted = self._wanted, None
        self._filler = self._filling(*wanted)
        if self._filler is not None:
            self.own(self._filler)
        return self._filler is not None

    def answer(self) -> int:
        """Stop the filler, because the answer's first audio is ready; return the samples of fillers sent."""
        self.stop_filler()
        return self.output.answer()

    def stop_filler(self) -> None:
        """Stop the filler, because the reply ends."""
        if self._filler is not None:
            self._filler.cancel()

    def commit(self) -> None:
        """Open the commit gate."""
        self.mark("committed")
        self.gate.commit()
        self.output.committed()

    def pause(self) -> None:
        """Pause the reply: nothing of it is sent until ``resume``, and nothing is lost."""
        self.gate.pause()
        self.output.pause()

    def resume(self) -> None:
        """Resume a paused reply at the sample where it paused."""
        if self.gate.resume():
            self.output.resume()

    def cancel(self) -> None:
        """Cancel the reply: nothing more of it is sent."""
        for task in self._tasks:
            task.cancel()

    async def add_context(self) -> None:
        """Wait for retrieved knowledge, at most ``context_wait_s``, and add it to the prompt.

        Cancelling leaves the prompt as it is.
        """
        if (lookup := self.generation.lookup) is None:
            return
        in_time = await self.generation.add_context(self.settings.context_wait_s)
        self.mark("context")
        took = {"context_ms": round(lookup.work.seconds * 1000.0, 1)}
        self.trace.count(took if in_time else {"context_late": 1})

    async def cached(self) -> CachedAnswer | None:
        """Return the answer that the cache has, None for a miss. Cancelling changes nothing."""
        if self.search is None:
            return None
        found = await self.search.wait()
        self.mark("cache")
        match = "cache_miss" if found is None else "cache_exact" if found.exact else "cache_similar"
        late = {} if self.search.work.done else {"cache_late": 1.0}
        self.trace.count({match: 1, "cache_ms": round(self.search.work.seconds * 1000.0, 1), **late})
        return found

    def keep_answer(self) -> None:
        """Let the cache keep the answer, which was heard to its end, unless it came from there.

        Only answers to a user's first words are kept: what was said before could be in any other. Those of a
        model that stands in for the first one are not.
        """
        whole = self.outcome.status == "completed" and not self.generation.ends_early
        whole = whole and not self.upstream.stood_in
        if self.search and whole and self.search.question.first and not self.search.found:
            if answer := self.recording.answer():
                self.search.cache.keep(self.search.question, answer)
        self.recording = AnswerRecording()  # the records of replies keep this one for a while

    def usage(self, llm: Llm) -> Usage | None:
        """Return the tokens used so far, as the model's server or ``llm`` counted them; None if unknown."""
        return self.upstream.usage or self.generation.usage(llm)

    def spent(self, usage: Usage | None) -> int:
        """Return the tokens that count against limits: those used, or an estimate where they are unknown.

        A server tells them with the last piece of an answer, so a reply that is stopped lacks them. A request
        that failed before its first piece costs nothing.
        """
        if usage is not None:
            return usage.read + usage.written
        return 0 if self.outcome.failed and not self.generation.tokens else self.generation.estimate()

    def mark(self, name: str) -> None:
        """Record in the trace that ``name`` happened now."""
        self.trace.mark(name, asyncio.get_running_loop().time())
