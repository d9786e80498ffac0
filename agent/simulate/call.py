"""A simulated call and its result."""

from __future__ import annotations

import asyncio
from typing import Any

from rejoinder.agent.simulate.actor import Actor, CallerStep
from rejoinder.agent.simulate.line import Line
from rejoinder.agent.simulate.models import CallersStt, CallersTurnModel, Spoken, WatchedLlm
from rejoinder.agent.simulate.scenario import Talk
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
        models: dict[str, Any],
    ) -> None:
        spoken = Spoken()
        models = {"stt": CallersStt(spoken), "turn": CallersTurnModel(lambda: spoken.done), **models}
        watched = WatchedLlm(llm, answers_in)
        self.talk = Talk(llm=watched, line=line, options=options or Options(instructions=""), **models)
        self.prompts: list[list[Message]] = watched.prompts
        self.ended = 0.0
        self._actor = Actor(script, self.talk, spoken)

    async def hold(self, interrupted_at: int | None = None) -> None:
        """Run the script against a session. Cancelling hangs up.

        interrupted_at: stop the agent in this step of the loop, skip the rest of the script, and stay on the
            line for ``STOPPED_SECONDS``.
        """
        actor = self._actor
        script = actor.follow if interrupted_at is None else lambda: actor.follow_to(interrupted_at)
        try:
            await self.talk.hold(script)
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
    def turns(self) -> list[str]:
        """The final transcript of each turn of the caller."""
        return [event.text for event in self.talk.of(EndOfTurn)]

    def timeline(self) -> list[str]:
        """Return one line per event, with its time in seconds to the millisecond."""
        return self._actor.timeline()
