"""Simulated callers in virtual time: they test your agent in milliseconds, with the same result each time.

    call = Caller(MyLlm()).says("what is the weather").hears(1.0).interrupts("in Paris").hears_out().call()
    assert call.history[-1] == ("assistant", "It rains in Paris.")

The session, its floor, its history and its play-out clock are the real ones. The sound is simulated: the
recogniser knows the caller's words, and the voice hums. docs/guides/simulate.md lists all verbs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.actor import CallerStep
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.line import Line
from rejoinder.pipeline import Llm, Options, Session, check_fits

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.call import CallInfo


class Caller:
    """A script of a caller's actions. Each verb adds an action and returns the script; ``call`` runs it.

    llm: the agent under test, any object with the pipeline's Llm interface. options: of the session.
    answers_in: virtual seconds to the first token of a model that works in real time; see ``WatchedLlm``.
    line: the network. agent: the integrator's agent, with its tools and hooks. info: who calls, for its
    hooks. real_time: virtual time passes as real time does while the model, a tool or a hook before the call
    works, so that they may use sockets. models: replacements for the simulated models, as vad, stt, tts or
    turn. Raises ModelError if ``llm`` does not fit the interface.
    """

    def __init__(
        self,
        llm: Llm,
        options: Options | None = None,
        answers_in: float | None = None,
        line: Line | None = None,
        *,
        agent: Agent[Any, Any] | None = None,
        info: CallInfo | None = None,
        real_time: bool = False,
        **models: Any,
    ) -> None:
        if unknown := models.keys() - {"vad", "stt", "tts", "turn"}:
            raise TypeError(f"a caller has no {min(unknown)}: give vad, stt, tts or turn (or info=)")
        if isinstance(info, str):
            raise TypeError(f"info is a CallInfo, such as CallInfo(caller={info!r})")
        check_fits("llm", llm)
        self.steps: list[CallerStep] = []
        self._llm = llm
        self._options = options
        self._answers_in = answers_in
        self._line = line or Line()
        self._real_time = real_time
        self._more = {"agent": agent, "info": info, **models}

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

    def call(self, debug: bool = False, raises: bool = True) -> Call:
        """Run the call in virtual time, hang up after the last step, and return its result.

        raises: whether to raise the first exception of the agent's hooks and tools, once the call is over.
        With False, ``Call.failures`` has them, as a real call would go on, too.

        Raises NothingHeard, RefusedCall, and AssertionError if a request is left open or events are out of
        order.
        """
        call = self.prepared()
        try:
            virtual_clock.run(call.converse(), debug)
        except Exception:
            if raises:  # it may be why the caller heard nothing
                call.raise_failure()
            raise
        if raises:
            call.raise_failure()
        call.talk.check()
        return call

    def prepared(self) -> Call:
        """Return the call before it begins, to run it on another loop in virtual time."""
        return Call(
            list(self.steps),
            self._llm,
            self._options,
            self._answers_in,
            self._line,
            self._real_time,
            dict(self._more),
        )
