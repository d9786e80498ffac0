"""A call to your agent in virtual time, step by step: what the caller says, and what the agent has to do.

async with simulate(agent, 'One moment. @book {"people": 4}', "It is booked.") as caller:
    await caller.says("A table for four.")
    await caller.expects(tool="book", within=4.0)
    await caller.expects("booked")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import LATE_RESULT
from rejoinder.agent.simulate.models import seconds_of
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt
from rejoinder.pipeline import EndOfTurn, Event, Llm, Message, ReplyCalled, ReplyDone, TurnTraced
from rejoinder.pipeline.errors import first_error
from rejoinder.pipeline.options import IDLE_CUE
from rejoinder.pipeline.prompt import PENDING

SHORTEST_SECONDS = 0.4
"""Shortest utterance of the caller, in seconds."""
WITHIN_SECONDS = 10.0
"""Default for the longest wait of ``expects``, in virtual seconds."""
CHECK_SECONDS = 0.02
"""Virtual time between two looks at what has happened, in seconds."""
TURN_SECONDS = 5.0
"""Longest wait for the end of the caller's turn, in virtual seconds."""


CUES = (IDLE_CUE, LATE_RESULT)
"""Messages of the user's role that no caller has said."""


class NotExpected(AssertionError):
    """The agent has not done what was expected of it. The message has the log of the call."""


class PromptedLlm(ScriptedLlm):
    """Answers each new prompt with the next line of a script, and the same prompt with the same line.

    A prompt is new if it has more turns of the caller, calls or results than the ones before it. So an answer
    that was discarded, a greeting and words of a tool use up no line.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines)
        self._rounds: dict[tuple[int, int, int], int] = {}

    def _line(self, messages: Sequence[Message]) -> str:
        self.prompts.append(list(messages))
        said = sum(one["role"] == "user" and one["content"] not in CUES for one in messages)
        results = [one["content"] for one in messages if one["role"] == "tool"]
        now = said, len(results), len(results) - results.count(PENDING)
        return self.lines[self._rounds.setdefault(now, len(self._rounds)) % len(self.lines)]


class SimulatedCaller:
    """The caller of one simulated call. Each ``expects`` looks at what happened after the one before it.

    heard: what the caller has heard of each of the agent's replies. called: each call of a tool, with its
    arguments. over: why the agent or a limit has ended the call, "" until then.
    """

    def __init__(self, talk: Talk, stt: ScriptedStt) -> None:
        self._talk = talk
        self._stt = stt
        self._seen = 0

    @property
    def heard(self) -> list[str]:
        """What the caller has heard of each of the agent's replies that had words."""
        return [done.heard for done in self._talk.of(ReplyDone) if done.heard]

    @property
    def called(self) -> list[tuple[str, dict[str, Any]]]:
        """The name and the arguments of each call of a tool."""
        return [(one.call.name, _arguments(one.call.arguments)) for one in self._talk.of(ReplyCalled)]

    @property
    def found(self) -> str:
        """What the agent's context functions found for its last answer, "" if nothing."""
        traces = self._talk.of(TurnTraced)
        return str(traces[-1].trace.found) if traces else ""

    @property
    def over(self) -> str:
        """Why the agent or a limit has ended the call, "" until then."""
        return self._talk.hung_up[1] if self._talk.hung_up else ""

    async def says(self, text: str) -> None:
        """Say something, and wait until the agent takes the turn for ended.

        Raises NotExpected if it does not. Cancelling stops the wait.
        """
        turns, now = len(self._talk.of(EndOfTurn)), asyncio.get_running_loop().time()
        self._stt.lines.append(text)
        seconds = max(SHORTEST_SECONDS, seconds_of(text))
        self._talk.says(seconds, at=now + CHECK_SECONDS)
        await self._until(lambda: len(self._talk.of(EndOfTurn)) > turns, seconds + TURN_SECONDS, "a turn")

    async def waits(self, seconds: float) -> None:
        """Say nothing for some virtual seconds. Cancelling stops the wait."""
        await asyncio.sleep(seconds)

    async def expects(
        self, words: str = "", *, tool: str = "", over: bool = False, within: float = WITHIN_SECONDS
    ) -> dict[str, Any]:
        """Wait until the agent has said some words, called a tool or ended the call.

        words: a part of a reply that was heard, in upper or lower case. tool: its name. over: whether the
        call has to end. within: virtual seconds. Returns the arguments of the tool. Raises NotExpected.
        Cancelling stops the wait.
        """
        found: dict[str, Any] = {}

        def happened() -> bool:
            if over:
                return bool(self.over)
            for place in range(self._seen, len(self._talk.log)):
                event = self._talk.log[place][1]
                if _fits(event, words, tool):
                    self._seen = place + 1
                    found.update(_arguments(event.call.arguments) if isinstance(event, ReplyCalled) else {})
                    return True
            return False

        wanted = "the end of the call" if over else f"a call of {tool}" if tool else f"the words {words!r}"
        await self._until(happened, within, wanted)
        return found

    async def _until(self, true: Callable[[], bool], seconds: float, wanted: str) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not true():
            if loop.time() > end or self.over:
                when = "before the call was over" if self.over else f"within {seconds:g} s"
                raise NotExpected("\n".join((f"there was not {wanted} {when}:", *self._talk.timeline())))
            await asyncio.sleep(CHECK_SECONDS)


@asynccontextmanager
async def simulate(
    agent: Agent, *replies: str, llm: Llm | None = None, worker: Sequence[str] = (), **options: Any
) -> AsyncIterator[SimulatedCaller]:
    """Hold a call with an agent for the length of the block, in virtual time (``run``).

    The agent's tools and hooks run for real. replies: what the language model answers, in order; the text
    after an ``@`` is a call of a tool: ``One moment. @book {"people": 4}``. llm: a language model in place of
    that script. worker: what the language model of the agent's worker answers. options: fields of
    ``Options``. Raises RefusedCall if the agent refuses the call. Cancelling ends the call.
    """
    stt = ScriptedStt([])
    answers, works = llm or PromptedLlm(replies or ("Hm.",)), ScriptedLlm(list(worker) or ["Hm."])
    talk = Talk(llm=answers, worker=works, stt=stt, agent=agent, **options)
    begun, over = asyncio.Event(), asyncio.Event()

    async def script() -> None:
        begun.set()
        await over.wait()

    try:
        async with asyncio.TaskGroup() as tasks:
            holding = tasks.create_task(talk.hold(script), name="simulated call")
            waiting = tasks.create_task(begun.wait())
            await asyncio.wait([holding, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            try:
                yield SimulatedCaller(talk, stt)
            finally:
                over.set()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    talk.check()


def _fits(event: Event, words: str, tool: str) -> bool:
    match event:
        case ReplyCalled(call=call):
            return bool(tool) and call.name == tool
        case ReplyDone(heard=heard):
            return not tool and bool(heard) and words.lower() in heard.lower()
    return False


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
