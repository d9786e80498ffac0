"""One reply of the agent: its parts, and the verbs that concern several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass

from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.budget import CallBudget
from rejoinder.pipeline.caching.answers import CachedAnswer
from rejoinder.pipeline.caching.recording import AnswerRecording
from rejoinder.pipeline.caching.search import Search
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.guarding.guard import Guard
from rejoinder.pipeline.interfaces import NO_TOOLS, Tools
from rejoinder.pipeline.options import Options, ReplyRequest
from rejoinder.pipeline.replying.commit_gate import CommitGate
from rejoinder.pipeline.replying.generation import Generation
from rejoinder.pipeline.replying.output import Output
from rejoinder.pipeline.replying.playout import Playout
from rejoinder.pipeline.replying.reply_outcome import ReplyOutcome
from rejoinder.pipeline.replying.text.filler import Filler
from rejoinder.pipeline.trace import Trace
from rejoinder.pipeline.upstream import Upstream


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """The settings of one reply: its request's, and the session's where the request has none.

    words: given words to speak verbatim, "" if the language model writes them.
    is_filler: whether these words only fill a silence.
    interruptible: whether speech may stop it. failure: the error with which it fails at once, None for none.
    speaks: False for a reply in text only.
    tools: the tools that it may call.
    max_tokens: as in ``Options``.
    max_seconds: seconds of speech after which no clause begins, 0 for no limit.
    holds_audio, context_wait_s, apology, cut_apology, key: as in ``Options``. guard: that too; None for given
        words.
    """

    words: str = ""
    speaks: bool = True
    tools: Tools = NO_TOOLS
    max_tokens: int = 0
    max_seconds: float = 0.0
    holds_audio: bool = False
    is_filler: bool = False
    interruptible: bool = True
    context_wait_s: float = 0.5
    apology: str = ""
    cut_apology: str = ""
    key: str = ""
    guard: Guard | None = None
    budget: CallBudget | None = None
    failure: ModelError | None = None

    @property
    def asks(self) -> bool:
        """Whether the language model is asked."""
        return not self.words and self.failure is None

    @property
    def needs_words(self) -> bool:
        """Whether an answer to the user without words is a fault: then an apology is spoken."""
        return self.speaks and bool(self.apology)

    @classmethod
    def of(cls, request: ReplyRequest, options: Options) -> ReplySettings:
        """Return the settings of the reply to a request in a session with these options."""
        return cls(
            request.words,
            options.speaks if request.speaks is None else request.speaks,
            options.tools if request.tools is None else request.tools,
            options.max_tokens if request.max_tokens is None else request.max_tokens,
            options.max_reply_s,
            options.holds_audio,
            request.is_filler,
            request.interruptible,
            options.context_wait_s,
            options.apology,
            options.cut_apology,
            options.key,
            None if request.words else options.guard,
            None if request.words else options.budget,
            request.failure,
        )


class Reply:
    """One reply. It can be dropped without a trace until it is committed.

    id: number of the reply in its session, from 1.
    text: the user's words that it answers, "" if it answers the history as it stands.
    is_guess: whether it started before the user's turn was surely over.
    request: for which it was built.
    settings: what was asked of it. generation: the language model's part.
    gate: what its stages wait for before they send. output: what the client receives.
    clauses: its words on their way to the voice, once it is spoken; None before.
    upstream: takes what the language model reports about it. outcome: how it ends.
    trace: the times of its steps, which begin with ``marks``.
    search: for a cached answer; None where none may be used. replayed: whether it is one. recording: of its
        audio, for the cache.
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
        self.request = request or ReplyRequest()
        self.id = id
        self.text = text
        self.is_guess = is_guess
        self.settings = settings or ReplySettings()
        self.generation = generation or Generation()
        self.gate = CommitGate()
        playout = Playout(self.settings.holds_audio)
        self.output = Output(self.gate, playout, deadline or Deadline(), listeners, id)
        self.clauses: Channel[str] | None = None
        self.outcome = ReplyOutcome()
        self.trace = Trace(id, text, dict(marks or {}))
        self.upstream = Upstream(self.trace, self.settings.speaks, self.settings.needs_words)
        self.upstream.key = self.settings.key
        self.search: Search | None = None
        self.replayed = False
        self.recording = AnswerRecording()
        self._tasks: list[asyncio.Task[None]] = []
        self._filler_over = False

    @property
    def committed(self) -> bool:
        """Whether the reply may be heard, remembered and acted on."""
        return self.gate.committed

    @property
    def may_fill(self) -> bool:
        """Whether a filler may be spoken: the reply is committed, and none of its words are there yet."""
        wordless = self.clauses is not None and not self.clauses.closed and not len(self.clauses)
        return self.committed and wordless and "first_clause" not in self.trace.marks

    @property
    def has_answer(self) -> bool:
        """Whether there are words after a filler: in this reply, or in the one that follows a filler."""
        return self._filler_over or (not self.settings.is_filler and "first_clause" in self.trace.marks)

    def end_filler(self) -> None:
        """End a reply that is a filler with its current word: the answer can begin."""
        self._filler_over = self.settings.is_filler

    def fill(self, words: str) -> None:
        """Speak a filler in front of the answer, if ``may_fill``."""
        if self.may_fill and self.clauses is not None:
            self.clauses.send_nowait(Filler(words))

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs the reply; None before ``start``."""
        return self._tasks[0] if self._tasks else None

    def start(self, run: Coroutine[None, None, None], name: str) -> None:
        """Run the coroutine in a new task, which ``cancel`` cancels."""
        self._tasks = [asyncio.create_task(run, name=name)]
        if lookup := self.generation.lookup:
            self.own(lookup.claim())

    def own(self, task: asyncio.Task[None]) -> None:
        """Cancel this task together with the reply, not one step later as its task group would."""
        self._tasks.append(task)

    async def cached(self) -> CachedAnswer | None:
        """Return the answer that the cache has, None for a miss. Cancelling stops the wait for it."""
        if self.search is None:
            return None
        found = await self.search.wait()
        self.replayed = found is not None
        self.mark("cache")
        match = "cache_miss" if found is None else "cache_exact" if found.exact else "cache_similar"
        late = {} if self.search.task.done() else {"cache_late": 1.0}
        self.trace.count({match: 1, "cache_ms": round(self.search.seconds * 1000.0, 1), **late})
        return found

    @property
    def may_be_kept(self) -> bool:
        """Whether a cache may keep the answer, once it was heard to its end.

        That of a model that stands in for another one is not kept, and neither is one with an opening, or
        with a clause about which a judge of the guard did not decide.
        """
        whole = not self.upstream.stood_in and not self.generation.ends_early
        return whole and not self.replayed and "guard_undecided" not in self.trace.counts

    def keep_answer(self) -> None:
        """Let the cache keep the answer, which was heard to its end, if it may."""
        if self.search and self.outcome.status == "completed" and self.may_be_kept:
            if answer := self.recording.answer():
                self.search.cache.keep(self.search.question, answer)
        self.release()

    def release(self) -> None:
        """Drop the audio of the cache: the records of replies keep this reply for a while."""
        self.search, self.recording = None, AnswerRecording()

    def commit(self) -> None:
        """Open the commit gate."""
        self.mark("committed")
        self.output.commit()

    def cancel(self) -> None:
        """Cancel the reply: nothing more of it is sent."""
        for task in self._tasks:
            task.cancel()

    def mark(self, name: str) -> None:
        """Record in the trace that ``name`` happened now."""
        self.trace.mark(name, asyncio.get_running_loop().time())
