"""The guard of one reply: two stages around the voice of a spoken one, and the stage of one in text only."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing

from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.events import Event, ReplyRefused, ReplyText
from rejoinder.pipeline.guarding.guard import Guard, Judge
from rejoinder.pipeline.guarding.injection import suspected
from rejoinder.pipeline.guarding.rules import Finding
from rejoinder.pipeline.guarding.screening import Screening
from rejoinder.pipeline.guarding.sentence_buffer import SentenceBuffer
from rejoinder.pipeline.interfaces import Llm, Tts
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.stages import CONTROL_PLACES, SpokenSlice, answer, speak_clause
from rejoinder.pipeline.replying.text.clauses import clauses_of
from rejoinder.pipeline.replying.text.filler import Filler

log = logging.getLogger(__name__)

UNDECIDED = "undecided"
"""The reason for a refusal by a strict guard whose judge failed or took too long."""

Task = asyncio.Task[None]
Verdict = tuple[str, asyncio.Task[str] | None]
"""A clause, and the task that asks the judges about it; None without judges."""


class Guarding:
    """The guard of one reply.

    The stages are think, screen, speak, vet, play. ``screen`` applies the rules, and starts the judges of the
    clauses that it passes on. ``vet`` holds the audio of a clause until they have answered.

    out: the session's events. allowed: the clauses for the voice. vetted: the audio that may be heard.
    """

    def __init__(self, reply: Reply, guard: Guard, out: Channel[Event]) -> None:
        self.allowed: Channel[str] = Channel(1, "allowed")
        self.vetted: Channel[SpokenSlice] = Channel(1, "vetted")
        self._reply = reply
        self._guard = guard
        self._out = out
        self._refused = ""
        self._warned = False
        self._verdicts: deque[Verdict] = deque()  # as many as there are clauses in the channels

    # --- a spoken reply ---------------------------------------------------------------------------------

    def start(
        self,
        tasks: asyncio.TaskGroup,
        tts: Tts,
        clauses: Channel[str],
        audio: Channel[SpokenSlice],
        thinking: Task,
        speaking: Task,
    ) -> None:
        """Start the two stages. thinking, speaking: the stages that end where a clause is refused."""
        screening = tasks.create_task(self._screen(tasks, clauses))
        vetting = tasks.create_task(self._vet(tts, audio, [thinking, screening, speaking]))
        self._reply.own(vetting)
        screening.add_done_callback(lambda _: thinking.cancel())  # it may have refused a clause
        speaking.add_done_callback(lambda _: screening.cancel())  # the voice may have reached the limit

    async def _screen(self, tasks: asyncio.TaskGroup, clauses: Channel[str]) -> None:
        """Pass on the clauses that the rules allow, apologies and fillers. Cancelling stops that."""
        self._mark_injection()
        screening = Screening(self._guard.rules)
        async for clause in clauses:
            if self._is_given(clause):
                if not await self._pass(tasks, screening, screening.flush()):
                    break
                self._verdicts.append((clause, None))
                await self.allowed.send(clause)
            elif not await self._pass(tasks, screening, screening.feed(clause)):
                break
        else:
            await self._pass(tasks, screening, screening.flush())
        self.allowed.close()

    async def _pass(self, tasks: asyncio.TaskGroup, screening: Screening, finding: Finding) -> bool:
        self._note(finding)
        if finding.text:
            judges = self._guard.judges
            sent = self.allowed.send_nowait(finding.text)  # first: the voice begins before the judges
            judging = tasks.create_task(self._judged(screening.allowed)) if judges else None
            self._verdicts.append((finding.text, judging))
            if not sent:
                await self.allowed.send(finding.text)
        return not finding.refused

    def _is_given(self, clause: str) -> bool:
        """Return whether the operator has written the clause: no guard judges it."""
        settings, excused = self._reply.settings, self._reply.outcome.excused
        apologies = (*clauses_of(settings.apology), *clauses_of(settings.cut_apology)) if excused else ()
        return isinstance(clause, Filler) or clause in apologies

    def _note(self, finding: Finding) -> None:
        self._refused = finding.refused
        if finding.redacted:
            self._reply.trace.count({"redacted": finding.redacted})

    async def _vet(self, tts: Tts, audio: Channel[SpokenSlice], before: Sequence[Task]) -> None:
        """Pass on the audio of clauses that the judges allow. Cancelling drops the rest."""
        refused, output, passed = "", self._reply.output, 0.0
        try:
            async for text, chunk, words in audio:
                if text and (refused := await self._verdict(text)):
                    break
                await self.vetted.send((text, chunk, words))
                passed += chunk.seconds
            if refused := refused or self._refused:
                for task in before:
                    task.cancel()
                output.add_synthesised(passed - output.synthesised)
                await self._refuse(refused)
                await self._apologise(tts)
            output.end()
        finally:
            for _, judging in self._verdicts:
                if judging:
                    judging.cancel()
        self.vetted.close()

    async def _verdict(self, clause: str) -> str:
        """Wait for the judges of a clause that has audio; return why it is refused, or ""."""
        while True:
            text, judging = self._verdicts.popleft()
            if text == clause:
                break
            if judging:
                judging.cancel()
        if judging is None:
            return ""
        refused = await judging
        self._reply.mark("guarded")
        return refused

    async def _apologise(self, tts: Tts) -> None:
        """Send the audio of the sentence that replaces a refused clause."""
        for clause in clauses_of(self._guard.say):
            await speak_clause(self._reply, tts, clause, self.vetted)

    # --- a reply in text only ---------------------------------------------------------------------------

    async def write(self, llm: Llm) -> None:
        """Send the model's words sentence by sentence, after the commit. Cancelling discards the rest."""
        pieces, screening = SentenceBuffer(), Screening(self._guard.rules, joint="")
        self._mark_injection()
        async with aclosing(answer(self._reply, llm)) as tokens:
            async for token in tokens:
                for piece in pieces.feed(token):
                    if not await self._send(screening, screening.feed(piece)):
                        return
        if await self._send(screening, screening.feed(pieces.flush())):
            await self._send(screening, screening.flush())
            self._reply.output.end()

    async def _send(self, screening: Screening, finding: Finding) -> bool:
        self._note(finding)
        refused, text = finding.refused, finding.text
        if text and self._guard.judges:
            refused = await self._judged(screening.allowed)
        if refused:
            await self._refuse(refused)
            text = self._guard.say
        if text:
            await self._reply.gate.wait_committed()
            await self._reply.gate.wait_running()
            await self._out.send(ReplyText(self._reply.id, text), CONTROL_PLACES)
            self._reply.output.add_text(text)
        if refused:
            self._reply.output.end()
        return not refused

    # --- both -------------------------------------------------------------------------------------------

    async def _refuse(self, reason: str) -> None:
        """Record that a clause is refused, and tell the client, after the commit."""
        await self._reply.gate.wait_committed()
        self._reply.outcome.refuse(reason)
        self._reply.mark("refused")
        self._reply.trace.count({"refused": 1})
        log.info("reply %d: a clause was refused: %s", self._reply.id, reason)
        await self._out.send(ReplyRefused(self._reply.id, reason), CONTROL_PLACES)

    def _mark_injection(self) -> None:
        if self._guard.marks_injection and suspected(self._reply.text):
            self._reply.trace.count({"injection": 1})

    async def _judged(self, text: str) -> str:
        """Return why a judge refuses a text, "" if none does. Cancelling stops the judges."""
        reasons = await asyncio.gather(*(self._ask(judge, text) for judge in self._guard.judges))
        return next(filter(None, reasons), "")

    async def _ask(self, judge: Judge, text: str) -> str:
        try:
            async with asyncio.timeout(self._guard.wait_s):
                return await judge(text)
        except TimeoutError:
            self._warn(f"a guard did not answer within {self._guard.wait_s:g} s")
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            self._warn("a guard failed: something that it waited for was cancelled")
        except ModelError as error:
            self._warn(f"a guard failed: {error}")
        except Exception as error:  # its message may quote the refused words
            self._warn(f"a guard failed: {type(error).__name__}")
        self._reply.trace.count({"guard_undecided": 1})
        return UNDECIDED if self._guard.strict else ""

    def _warn(self, problem: str) -> None:
        """Log a problem once for each reply: an endpoint that is down fails for each of its clauses."""
        if not self._warned:
            self._warned = True
            log.warning("reply %d: %s", self._reply.id, problem)
