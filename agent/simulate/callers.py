"""Simulated callers in virtual time: your own agent is talked to for minutes in milliseconds, always alike.

    call = Caller(MyLlm()).says("what is the weather").hears(1.0).interrupts("in Paris").hears_out().call()
    assert call.history[-1] == ("assistant", "It rains in Paris.")

The session, its floor, its history and its play-out clock are the real ones. The sound is not: the recogniser
knows what the caller says, and the voice hums. docs/guides/simulate.md has the whole vocabulary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.line import Line
from rejoinder.agent.simulate.models import CallersStt, CallersTurnModel, Spoken, WatchedLlm, seconds_of
from rejoinder.agent.simulate.scenario import CHUNK_SECONDS, LOUD, Talk, sleep_until
from rejoinder.pipeline import EndOfTurn, Floor, Llm, Message, Options, Session, check_fits

__all__ = ["Call", "Caller", "Line", "NothingHeard"]

WAIT_SECONDS = 30.0
"""Virtual seconds after which a caller who waits for the agent gives up."""
AFTER_SECONDS = 2.0
MIDDLE = frozenset({"pauses", "hesitates", "says"})
"""What is told after words and belongs to the same turn."""
WHO = {Floor.USER: "user", Floor.PAUSE: "user?", Floor.AGENT: "agent", Floor.OVERLAP: "agent?"}
"""Who has the floor; with a question mark where that is in doubt."""


class NothingHeard(AssertionError):
    """The caller waited for the agent, who said nothing, or did not end."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the caller does."""

    verb: str
    text: str = ""
    seconds: float = 0.0
    act: Callable[[Session], Awaitable[None] | None] | None = None


class Caller:
    """A script of what somebody does in a call. Each verb adds to it and returns it; ``call`` holds the call.

    llm: the agent under test, anything with the pipeline's Llm interface. options: those of the session.
    answers_in: seconds to the first token of a model that works in real time; see ``WatchedLlm``.
    line: the network. models: others than the simulated ones, as vad, stt, tts or turn. Raises ModelError for
    an agent that does not fit that interface.
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
        self.steps: list[Step] = []
        self._llm = llm
        self._options = options
        self._answers_in = answers_in
        self._line = line or Line()
        self._models = models

    def says(self, text: str) -> Caller:
        """Say something, at 17 characters per second."""
        return self._then(Step("says", text))

    def pauses(self, seconds: float) -> Caller:
        """Be silent in the middle of a turn."""
        return self._then(Step("pauses", seconds=seconds))

    def hesitates(self, seconds: float = 0.6, sound: str = "um") -> Caller:
        """Say "um", and then nothing for so many seconds, in the middle of a turn."""
        return self.says(sound).pauses(seconds)

    def coughs(self, seconds: float = 0.3) -> Caller:
        """Make a sound without words."""
        return self._then(Step("coughs", seconds=seconds))

    def backchannels(self, text: str = "mm-hm") -> Caller:
        """Say that you listen, and want no answer."""
        return self._then(Step("backchannels", text))

    def hears(self, seconds: float) -> Caller:
        """Listen until so much more of the agent has been heard."""
        return self._then(Step("hears", seconds=seconds))

    def interrupts(self, text: str, after: float = 1.0) -> Caller:
        """Hear so many seconds of the agent and then talk over it."""
        return self.hears(after).says(text)

    def hears_out(self) -> Caller:
        """Listen until the agent has answered and has nothing more to say."""
        return self._then(Step("hears_out"))

    def waits(self, seconds: float) -> Caller:
        """Be silent because it is the agent's turn, or nobody's."""
        return self._then(Step("waits", seconds=seconds))

    def types(self, text: str) -> Caller:
        """Write instead of speaking, and ask for an answer."""
        return self._then(Step("types", text))

    def does(self, act: Callable[[Session], Awaitable[None] | None]) -> Caller:
        """Do anything with the session."""
        return self._then(Step("does", act=act))

    def _then(self, step: Step) -> Caller:
        self.steps.append(step)
        return self

    def call(self, debug: bool = False) -> Call:
        """Hold the call in virtual time, hang up after the last step, and return what came of it.

        Raises NothingHeard, and AssertionError where anything is left open or told out of order.
        """
        call = self.prepared()
        virtual_clock.run(call.hold(), debug)
        call.talk.check()
        return call

    def prepared(self) -> Call:
        """Return the call before it begins, for a loop in virtual time that is run otherwise."""
        return Call(list(self.steps), self._llm, self._options, self._answers_in, self._line, self._models)


class Call:
    """One call and what came of it. Times are virtual seconds from its beginning.

    talk: the conversation with its log of events. said: the words of the caller, typed ones too.
    prompts: what the language model was asked.
    steps: how often the loop looked for work while it was held. ended: when it was over.
    """

    def __init__(
        self,
        script: list[Step],
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

        interrupted_at: stop the agent in this step of the loop, leave the rest of the script out, and stay on
            the line for ``AFTER_SECONDS``.
        """
        script = self._follow if interrupted_at is None else lambda: self._follow_to(interrupted_at)
        try:
            await self.talk.hold(script)
        finally:
            self.ended = self._now()

    # --- what came of it --------------------------------------------------------------------------------

    @property
    def history(self) -> list[tuple[str, str]]:
        """Who said what, as the agent remembers it; a dash ends what was cut."""
        return self.talk.said()

    @property
    def heard(self) -> list[str]:
        """What was heard of each reply, to the word."""
        return [text for turn in self.talk.ear.turns() if (text := self.talk.heard(turn, self.ended))]

    @property
    def floor(self) -> list[str]:
        """Who had the floor, in order: user, user? in a pause, agent, agent? while talked over, nobody."""
        return [WHO.get(floor, "nobody") for _, floor in self.talk.floors]

    def floor_at(self, seconds: float) -> str:
        """Return who had the floor at a time."""
        had = [floor for at, floor in self.talk.floors if at <= seconds]
        return WHO.get(had[-1], "nobody") if had else "nobody"

    @property
    def latency_ms(self) -> list[int]:
        """Milliseconds from the end of the caller's words to the first sound of each answer to them."""
        waits: dict[float, int] = {}
        for turn in self.talk.ear.turns():
            first = self.talk.ear.first(turn)
            ends = [end for end in self._ends if first is not None and end <= first]
            if first is not None and ends:
                waits.setdefault(ends[-1], round((first - ends[-1]) * 1000))
        return list(waits.values())

    @property
    def turns(self) -> list[str]:
        """What the caller said, turn by turn, as the agent understood it."""
        return [event.text for event in self.talk.of(EndOfTurn)]

    def timeline(self) -> list[str]:
        """Return one line for each thing that happened, with its second to the millisecond."""
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
        await asyncio.sleep(AFTER_SECONDS)

    async def _do(self, step: Step, goes_on: bool) -> None:
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
        """Make a sound from the next block of the microphone on, and wait until it is over."""
        begin = -(-round(self._now() * 1e6) // round(CHUNK_SECONDS * 1e6)) * CHUNK_SECONDS
        await sleep_until(begin)
        self._note(what)
        self.said += text.split()
        self._spoken.write(text, begin)
        self.talk.says(seconds, at=begin, sound=LOUD)
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
