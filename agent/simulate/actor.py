"""What a simulated caller does during a call: follows its script step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.models import Spoken, seconds_of
from rejoinder.agent.simulate.scenario import CHUNK_SECONDS, SPEECH_CHUNK, Talk, sleep_until
from rejoinder.pipeline import Floor, Session

WAIT_SECONDS = 30.0
"""Virtual seconds after which a caller stops waiting for the agent."""
STOPPED_SECONDS = 2.0
"""Virtual seconds on the line after the agent was stopped."""
MIDDLE = frozenset({"pauses", "hesitates", "says"})
"""Verbs that, directly after words, continue the same turn."""


class NothingHeard(AssertionError):
    """The caller waited for the agent, which said nothing or did not finish."""


@dataclass(frozen=True, slots=True)
class CallerStep:
    """One action of the caller."""

    verb: str
    text: str = ""
    seconds: float = 0.0
    act: Callable[[Session], Awaitable[None] | None] | None = None


class Actor:
    """Does the steps of a script in a conversation. Times are virtual seconds since the start of the call.

    said: the caller's words so far, including typed ones. ends: when each of the caller's turns ended. steps:
    number of iterations of the event loop until the end of the script. actions: what the caller did, and
    when. finished: whether the script is at its end.
    """

    def __init__(self, script: Sequence[CallerStep], talk: Talk, spoken: Spoken) -> None:
        self.said: list[str] = []
        self.ends: list[float] = []
        self.steps = 0
        self.talk = talk
        self._script = script
        self._spoken = spoken
        self.actions: list[tuple[float, str]] = []
        self.finished = False
        self._heard_before = 0.0

    async def follow(self) -> None:
        """Do every step of the script. Cancelling skips the rest. Raises NothingHeard."""
        for place, step in enumerate(self._script):
            after = self._script[place + 1].verb if place + 1 < len(self._script) else ""
            await self._do(step, after in MIDDLE)
        self.steps = virtual_clock.steps_so_far()
        self.finished = True

    async def follow_to(self, step: int) -> None:
        """Follow the script until a step of the loop, stop the agent there, and stay on the line for a while.

        Cancelling skips the rest of the script, and does not wait.
        """
        following = asyncio.create_task(self.follow())

        def stop() -> None:
            self.talk.session.interrupt()
            following.cancel()

        virtual_clock.at_step(step, lambda: asyncio.get_running_loop().call_soon(stop))
        try:
            await asyncio.wait([following])
        finally:
            following.cancel()
        await asyncio.sleep(STOPPED_SECONDS)

    def timeline(self) -> list[str]:
        """Return one line per event, with its time in seconds to the millisecond."""
        lines = [(at, 0, f"{at:.3f} caller {what}") for at, what in self.actions]
        lines += [(float(line.split()[0]), 1, line) for line in self.talk.timeline()]
        return [line for _, _, line in sorted(lines, key=lambda one: one[:2])]

    async def _do(self, step: CallerStep, goes_on: bool) -> None:
        match step.verb:
            case "says":
                self._spoken.done = False
                self._heard_before = self.talk.ear.seconds(self._now())
                await self._speak(step.verb, step.text)
                self._spoken.done = not goes_on
                self.ends.append(self._now())
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
                self._record(f"types: {step.text}")
                self._heard_before = self.talk.ear.seconds(self._now())
                self.said += step.text.split()
                self.talk.types(step.text)
            case "does" if step.act and (doing := step.act(self.talk.session)) is not None:
                await doing

    def _answered(self) -> bool:
        now, ear = self._now(), self.talk.ear
        quiet = self.talk.session.reply is None and self.talk.session.floor.floor is Floor.NOBODY
        quiet = quiet and not self.talk.working
        return quiet and not ear.playing(now) and ear.seconds(now) > self._heard_before

    async def _speak(self, verb: str, text: str) -> None:
        await self._sound(f"{verb}: {text}", seconds_of(text), text)

    async def _sound(self, what: str, seconds: float, text: str = "") -> None:
        """Make a sound, from the next block of the microphone on, and wait until it ends."""
        begin = -(-round(self._now() * 1e6) // round(CHUNK_SECONDS * 1e6)) * CHUNK_SECONDS
        await sleep_until(begin)
        self._record(what)
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

    def _record(self, what: str) -> None:
        self.actions.append((self._now(), what))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
