"""Simulated callers in virtual time: they test your agent in milliseconds, with the same result each time.

    call = Caller(MyLlm()).says("what is the weather").hears(1.0).interrupts("in Paris").hears_out().call()
    assert call.history[-1] == ("assistant", "It rains in Paris.")

The session, its floor, its history and its play-out clock are the real ones. The sound is simulated: the
recogniser knows the caller's words, and the voice hums. docs/guides/simulate.md lists all verbs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.line import Line
from rejoinder.agent.simulate.models import CallersStt, CallersTurnModel, Spoken, WatchedLlm, seconds_of
from rejoinder.agent.simulate.scenario import CHUNK_SECONDS, SPEECH_CHUNK, Talk, sleep_until
from rejoinder.pipeline import EndOfTurn, Floor, Llm, Message, Options, Session, check_fits

__all__ = ["Call", "Caller", "Line", "NothingHeard"]

WAIT_SECONDS = 30.0
"""Virtual seconds after which a caller stops waiting for the agent."""
STOPPED_SECONDS = 2.0
"""Virtual seconds on the line after the agent was stopped."""
MIDDLE = frozenset({"pauses", "hesitates", "says"})
"""Verbs that, directly after words, continue the same turn."""
WHO = {Floor.USER: "user", Floor.PAUSE: "user?", Floor.AGENT: "agent", Floor.OVERLAP: "agent?"}
"""The holder of the floor; a question mark means that it is uncertain."""


class NothingHeard(AssertionError):
    """The caller waited for the agent, which said nothing or did not finish."""


@dataclass(frozen=True, slots=True)
class CallerStep:
    """One action of the caller."""

    verb: str
    text: str = ""
    seconds: float = 0.0
    act: Callable[[Session], Awaitable[None] | None] | None = None


class Caller:
    """A script of a caller's actions. Each verb adds an action and returns the script; ``call`` runs it.

    llm: the agent under test, any object with the pipeline's Llm interface. options: of the session.
    answers_in: virtual seconds to the first token of a model that works in real time; see ``WatchedLlm``.
    line: the network. models: replacements for the simulated models, as vad, stt, tts or turn. Raises
    ModelError if ``llm`` does not fit the interface.
    """

    def __init__(
        self,
        llm: Llm,
        options: Options | None = None,
        answers_in: float | None = None,
        line: Line | None = None,
        **models: Any,
    ) -> None:
        check_fits("llm", llm)
        self.steps: list[CallerStep] = []
        self._llm = llm
        self._options = options
        self._answers_in = answers_in
        self._line = line or Line()
        self._models = models

    def says(self, text: str) -> Caller:
        """Say something, at 17 characters per second."""
        return self._then(CallerStep("says", text))

    def pauses(self, seconds: float) -> Caller:
        """Be silent in the middle of a turn."""
        return self._then(CallerStep("pauses", seconds=seconds))

    def hesitates(self, seconds: float = 0.6, sound: str = "um") -> Caller:
        """Say "um" in the middle of a turn, then be silent for ``seconds``."""
        return self.says(sound).pauses(seconds)

    def coughs(self, seconds: float = 0.3) -> Caller:
        """Make a sound without words."""
        return self._then(CallerStep("coughs", seconds=seconds))

    def backchannels(self, text: str = "mm-hm") -> Caller:
        """Signal attention, such as "mm-hm", without asking for an answer."""
        return self._then(CallerStep("backchannels", text))

    def hears(self, seconds: float) -> Caller:
        """Listen until ``seconds`` more of the agent's audio have been played."""
        return self._then(CallerStep("hears", seconds=seconds))

    def interrupts(self, text: str, after: float = 1.0) -> Caller:
        """Listen to ``after`` seconds of the agent's audio, then talk over it."""
        return self.hears(after).says(text)

    def hears_out(self) -> Caller:
        """Listen until the agent has answered and is silent."""
        return self._then(CallerStep("hears_out"))

    def waits(self, seconds: float) -> Caller:
        """Be silent outside a turn."""
        return self._then(CallerStep("waits", seconds=seconds))

    def types(self, text: str) -> Caller:
        """Send text instead of speech, and request an answer."""
        return self._then(CallerStep("types", text))

    def does(self, act: Callable[[Session], Awaitable[None] | None]) -> Caller:
        """Call ``act`` with the session."""
        return self._then(CallerStep("does", act=act))

    def _then(self, step: CallerStep) -> Caller:
        self.steps.append(step)
        return self

    def call(self, debug: bool = False) -> Call:
        """Run the call in virtual time, hang up after the last step, and return its result.

        Raises NothingHeard, and AssertionError if a request is left open or events are out of order.
        """
        call = self.prepared()
        virtual_clock.run(call.hold(), debug)
        call.talk.check()
        return call

    def prepared(self) -> Call:
        """Return the call before it begins, to run it on another loop in virtual time."""
        return Call(list(self.steps), self._llm, self._options, self._answers_in, self._line, self._models)


class Call:
    """One call and its result. Times are virtual seconds since its start.

    talk: the conversation with its log of events. said: the caller's words, including typed ones.
    prompts: the prompts of the language model. steps: number of iterations of the event loop during the call.
    ended: when the call ended.
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
        self._spoken = Spoken()
        models = {"stt": CallersStt(self._spoken), "turn": CallersTurnModel(lambda: self._done), **models}
        watched = WatchedLlm(llm, answers_in)
        self.talk = Talk(llm=watched, line=line, options=options or Options(instructions=""), **models)
        self.prompts: list[list[Message]] = watched.prompts
        self.steps = 0
        self.ended = 0.0
        self.said: list[str] = []
        self._script = script
        self._done = True
        self._acts: list[tuple[float, str]] = []
        self._ends: list[float] = []
        self._heard_before = 0.0

    async def hold(self, interrupted_at: int | None = None) -> None:
        """Run the script against a session. Cancelling hangs up.

        interrupted_at: stop the agent in this step of the loop, skip the rest of the script, and stay on the
            line for ``STOPPED_SECONDS``.
        """
        script = self._follow if interrupted_at is None else lambda: self._follow_to(interrupted_at)
        try:
            await self.talk.hold(script)
        finally:
            self.ended = self._now()

    # --- what came of it --------------------------------------------------------------------------------

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
            ends = [end for end in self._ends if first is not None and end <= first]
            if first is not None and ends:
                waits.setdefault(ends[-1], round((first - ends[-1]) * 1000))
        return list(waits.values())

    @property
    def turns(self) -> list[str]:
        """The final transcript of each turn of the caller."""
        return [event.text for event in self.talk.of(EndOfTurn)]

    def timeline(self) -> list[str]:
        """Return one line per event, with its time in seconds to the millisecond."""
        lines = [(at, 0, f"{at:.3f} caller {what}") for at, what in self._acts]
        lines += [(float(line.split()[0]), 1, line) for line in self.talk.timeline()]
        return [line for _, _, line in sorted(lines, key=lambda one: one[:2])]

    # --- following the script ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        for place, step in enumerate(self._script):
            after = self._script[place + 1].verb if place + 1 < len(self._script) else ""
            await self._do(step, after in MIDDLE)
        self.steps = virtual_clock.steps_so_far()

    async def _follow_to(self, step: int) -> None:
        following = asyncio.create_task(self._follow())

        def stop() -> None:
            self.talk.session.interrupt()
            following.cancel()

        virtual_clock.at_step(step, lambda: asyncio.get_running_loop().call_soon(stop))
        await asyncio.wait([following])
        await asyncio.sleep(STOPPED_SECONDS)

    async def _do(self, step: CallerStep, goes_on: bool) -> None:
        match step.verb:
            case "says":
                self._done = False
                self._heard_before = self.talk.ear.seconds(self._now())
                await self._speak(step.verb, step.text)
                self._done = not goes_on
                self._ends.append(self._now())
            case "backchannels":
                await self._speak(step.verb, step.text)
            case "coughs":
                await self._sound(step.verb, step.seconds)
            case "pauses" | "waits":
                await asyncio.sleep(step.seconds)
            case "hears":
                wanted = self.talk.ear.seconds(self._now()) + step.seconds
                await self._until(lambda: self.talk.ear.seconds(self._now()) >= wanted, f"{step.seconds} s")
            case "hears_out":
                await self._until(self._answered, "an answer to its end")
            case "types":
                self._note(f"types: {step.text}")
                self._heard_before = self.talk.ear.seconds(self._now())
                self.said += step.text.split()
                self.talk.session.add_text(step.text)
                self.talk.session.respond()
            case "does" if step.act and (doing := step.act(self.talk.session)) is not None:
                await doing

    def _answered(self) -> bool:
        now, ear = self._now(), self.talk.ear
        quiet = self.talk.session.turn is None and self.talk.session.floor.floor is Floor.NOBODY
        return quiet and not ear.playing(now) and ear.seconds(now) > self._heard_before

    async def _speak(self, verb: str, text: str) -> None:
        await self._sound(f"{verb}: {text}", seconds_of(text), text)

    async def _sound(self, what: str, seconds: float, text: str = "") -> None:
        """Make a sound, from the next block of the microphone on, and wait until it ends."""
        begin = -(-round(self._now() * 1e6) // round(CHUNK_SECONDS * 1e6)) * CHUNK_SECONDS
        await sleep_until(begin)
        self._note(what)
        self.said += text.split()
        self._spoken.write(text, begin)
        self.talk.says(seconds, at=begin, sound=SPEECH_CHUNK)
        await sleep_until(begin + seconds)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        patience = self._now() + WAIT_SECONDS
        while not condition():
            if self._now() > patience:
                lines = "\n".join(self.timeline())
                raise NothingHeard(f"the caller waited {WAIT_SECONDS:g} s to hear {what}\n{lines}")
            await asyncio.sleep(CHUNK_SECONDS)
            self.talk.look()

    def _note(self, what: str) -> None:
        self._acts.append((self._now(), what))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
