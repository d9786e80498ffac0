"""A simulated call and its result."""

from __future__ import annotations

import asyncio
from typing import Any

from rejoinder.agent.simulate.actor import Actor, CallerStep
from rejoinder.agent.simulate.failures import CodeFailure
from rejoinder.agent.simulate.line import Line
from rejoinder.agent.simulate.models import CallersStt, CallersTurnModel, Spoken, watched
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.agent.simulate.tool_use import ToolUse, called
from rejoinder.pipeline import EndOfTurn, Floor, Llm, Message, Options

WHO = {Floor.USER: "user", Floor.PAUSE: "user?", Floor.AGENT: "agent", Floor.OVERLAP: "agent?"}
"""The holder of the floor; a question mark means that it is uncertain."""


class Call:
    """One call and its result. Times are virtual seconds since its start.

    talk: the conversation with its log of events. prompts: the prompts of the language model. ended: when the
    call ended.
    """

    def __init__(
        self,
        script: list[CallerStep],
        llm: Llm,
        options: Options | None,
        answers_in: float | None,
        line: Line,
        real_time: bool,
        more: dict[str, Any],
    ) -> None:
        spoken = Spoken()
        more = {"stt": CallersStt(spoken), "turn": CallersTurnModel(lambda: spoken.done), **more}
        under_test = watched(llm, answers_in, real_time)
        options = options or Options(instructions="")
        self.talk = Talk(llm=under_test, line=line, options=options, real_time=real_time, **more)
        self.prompts: list[list[Message]] = under_test.prompts
        self.ended = 0.0
        self._actor = Actor(script, self.talk, spoken)

    async def converse(self, interrupted_at: int | None = None) -> None:
        """Run the script against a session. Cancelling hangs up.

        interrupted_at: stop the agent in this step of the loop, skip the rest of the script, and stay on the
            line for ``STOPPED_SECONDS``.
        """
        actor = self._actor
        script = actor.follow if interrupted_at is None else lambda: actor.follow_to(interrupted_at)
        try:
            await self.talk.converse(script)
        finally:
            self.ended = asyncio.get_running_loop().time()

    @property
    def said(self) -> list[str]:
        """The caller's words, including typed ones."""
        return self._actor.said

    @property
    def steps(self) -> int:
        """Number of iterations of the event loop until the end of the script."""
        return self._actor.steps

    @property
    def history(self) -> list[tuple[str, str]]:
        """The agent's history as (role, words); a dash ends words that were cut."""
        return self.talk.said()

    @property
    def heard(self) -> list[str]:
        """The words of each reply that the caller heard."""
        return [text for turn in self.talk.ear.turns() if (text := self.talk.heard(turn, self.ended))]

    @property
    def floor(self) -> list[str]:
        """The holders of the floor, in order: user, user? (a pause), agent, agent? (an overlap), nobody."""
        return [WHO.get(floor, "nobody") for _, floor in self.talk.floors]

    def floor_at(self, seconds: float) -> str:
        """Return the holder of the floor at a time, as in ``floor``."""
        had = [floor for at, floor in self.talk.floors if at <= seconds]
        return WHO.get(had[-1], "nobody") if had else "nobody"

    @property
    def latency_ms(self) -> list[int]:
        """Milliseconds from the end of the caller's words to the first sound of the answer, per answer."""
        waits: dict[float, int] = {}
        for turn in self.talk.ear.turns():
            first = self.talk.ear.first(turn)
            ends = [end for end in self._actor.ends if first is not None and end <= first]
            if first is not None and ends:
                waits.setdefault(ends[-1], round((first - ends[-1]) * 1000))
        return list(waits.values())

    @property
    def tools_called(self) -> list[ToolUse]:
        """The calls of the agent's tools, in order. They compare by name and arguments."""
        return self.talk.tools_called

    def called(self, name: str, /, **arguments: Any) -> ToolUse:
        """Return the last call of a tool with at least these arguments.

        Raises AssertionError, with the calls that there were, if there is none.
        """
        return called(self.tools_called, name, arguments)

    @property
    def failures(self) -> list[CodeFailure]:
        """The exceptions of the agent's hooks, tools, context functions and memory, in order."""
        return self.talk.failures

    @property
    def turns(self) -> list[str]:
        """The final transcript of each turn of the caller."""
        return [event.text for event in self.talk.of(EndOfTurn)]

    @property
    def actions(self) -> list[tuple[float, str]]:
        """What the caller did, with the time of each action in seconds."""
        return self._actor.actions

    @property
    def finished(self) -> bool:
        """Whether the caller came to the end of the script; the agent may hang up before."""
        return self._actor.finished

    @property
    def transcript(self) -> list[Message]:
        """The conversation as both sides heard it, with the calls of tools, in OpenAI's chat format."""
        return self.talk.session.history.messages(instructions="")

    def raise_failure(self) -> None:
        """Raise the first exception of the agent's code, if there is one."""
        if self.failures:
            first, *others = self.failures
            more = f"; {len(others)} more followed" if others else ""
            first.error.add_note(f"{first.what} raised it, {first.at:.2f} s into the simulated call{more}")
            raise first.error

    def timeline(self) -> list[str]:
        """Return one line per event, with its time in seconds to the millisecond."""
        return self._actor.timeline()
