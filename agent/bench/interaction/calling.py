"""Holds the call of a script over a wire, and keeps what both sides said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.interaction.definitions import TURN, SaidSpan, Span
from rejoinder.agent.bench.interaction.script import CallScript, SayWhen, ScriptedSound
from rejoinder.agent.bench.interaction.sounds import CallerSound
from rejoinder.agent.bench.interaction.telephone import open_telephone
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.player import Player
from rejoinder.pipeline.audio.chunk import Samples

STANDARD = "standard"
"""A Realtime client that knows no events but the standard ones."""
HOLDING = "holding"
"""A Realtime client that holds its audio while the server decides."""
TELEPHONE = "telephone"
"""Twilio's media stream: mu-law at 8 kHz."""
CALLER_WIRES = (STANDARD, HOLDING, TELEPHONE)
"""How a caller may be connected."""
UNANSWERED_SECONDS = 5.0
"""Longest wait for an answer, and for the agent to speak before a sound over it."""
QUIET_SECONDS = 40.0
"""Longest wait for the end of the agent's reply."""
AFTER_SOUND_SECONDS = 2.2
"""Time after each sound before the next step, so that every window of the definitions has passed."""
AGENT_PAUSE_SECONDS = 0.3
"""Pauses of the agent up to this length are within its speech, when a caller waits for a place to speak."""


class ScriptedLine(Protocol):
    """What a script needs of a caller's connection."""

    player: Player

    @property
    def now(self) -> int:
        """Samples since the call began."""

    def say(self, audio: Samples) -> int:
        """Queue speech; return the sample of the call at which it begins."""

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds. Return False on timeout. Cancelling ends the wait."""

    def tracks(self) -> tuple[Samples, Samples]:
        """Return what was said and played, aligned: two float32 arrays of one shape (n,)."""


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that was held.

    said: the sounds that were made, each with its place in time. skipped: number of sounds that had no place,
    because the agent did not speak. agent: when its audio played, in seconds. spoken, played: both tracks,
    float32 of shape (n,) at 24 kHz. events: the server's turns, replies and pauses, as JSON data.
    """

    wire: str
    number: int
    speaker: str
    sounds: Sequence[CallerSound]
    said: Sequence[SaidSpan]
    skipped: int
    agent: Sequence[Span]
    spoken: Samples
    played: Samples
    events: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the call."""
        return len(self.spoken) / CLIENT_RATE


async def hold(wire: str, url: str, script: CallScript, number: int) -> HeldCall:
    """Hold one call. url: of the server's Realtime wire. Raises CallLost. Cancelling hangs up."""
    async with _connected(wire, url, script) as line:
        return await perform(line, wire, script, number)


async def perform(line: ScriptedLine, wire: str, script: CallScript, number: int) -> HeldCall:
    """Make the sounds of a script over an open line. Raises CallLost. Cancelling leaves the line open."""
    made: list[tuple[CallerSound, SaidSpan]] = []
    for step in script.sounds:
        if (begin := await _say(line, step)) is not None:
            span = SaidSpan(step.sound.category, begin, begin + step.sound.seconds)
            made.append((step.sound, span))
            await _hear_out(line, step.sound, span)
    spoken, played = line.tracks()
    agent = [(begin / CLIENT_RATE, end / CLIENT_RATE) for begin, end in line.player.spans()]
    events = _events(line) if isinstance(line, LiveCaller) else {}
    return HeldCall(
        wire,
        number,
        script.speaker,
        [sound for sound, _ in made],
        [span for _, span in made],
        len(script.sounds) - len(made),
        agent,
        spoken,
        played,
        events,
    )


@asynccontextmanager
async def _connected(wire: str, url: str, script: CallScript) -> AsyncIterator[ScriptedLine]:
    if wire == TELEPHONE:
        async with open_telephone(url, script.background) as telephone:
            yield telephone
    else:
        address = url if wire == HOLDING else url.replace("&hold=true", "")
        async with open_call(address, background=script.background) as caller:
            yield caller


async def _say(line: ScriptedLine, step: ScriptedSound) -> float | None:
    """Make a sound at its place; return its first second in the call, None if there was no place for it."""
    wanted = int(step.after * CLIENT_RATE)
    since: int | None = None

    def undisturbed() -> bool:
        nonlocal since
        now = line.now
        quiet = now - line.player.end > AGENT_PAUSE_SECONDS * CLIENT_RATE
        if quiet is (step.when is SayWhen.OVER_AGENT):
            since = None
            return False
        since = now if since is None else since
        return now - since >= wanted and (step.when is SayWhen.IN_SILENCE or line.player.playing(now))

    longest = QUIET_SECONDS if step.when is SayWhen.IN_SILENCE else UNANSWERED_SECONDS + step.after
    if not await line.until(undisturbed, longest):
        return None
    return line.say(step.sound.audio) / CLIENT_RATE


async def _hear_out(line: ScriptedLine, sound: CallerSound, span: SaidSpan) -> None:
    """Wait for the agent's answer to a turn, or until nothing of a sound counts any more."""
    end = int(span.end * CLIENT_RATE)
    if sound.category == TURN:
        await line.until(
            lambda: line.now > end and line.player.playing(line.now), sound.seconds + UNANSWERED_SECONDS
        )
    else:
        last = end + int(AFTER_SOUND_SECONDS * CLIENT_RATE)
        await line.until(lambda: line.now >= last, sound.seconds + 2 * AFTER_SOUND_SECONDS)


def _events(caller: LiveCaller) -> dict[str, Any]:
    """Return what the server reported, with times in seconds of the call."""

    def seconds(at: int | None) -> float | None:
        return None if at is None else round(at / CLIENT_RATE, 3)

    return {
        "turns": [
            {"reported": seconds(turn.begin), "end": seconds(turn.end), "text": turn.text}
            for turn in caller.turns
        ],
        "pauses": [{"at": seconds(pause.at), "until": seconds(pause.until)} for pause in caller.holds],
        "replies": [
            {
                "created": seconds(reply.created),
                "first_sound": seconds(caller.player.first_audible(reply.item)),
                "last_sample": seconds(caller.player.last_sample(reply.item)),
                "status": reply.status,
                "text": reply.text,
                "cut": asdict(reply.cut) if reply.cut else None,
            }
            for reply in caller.replies
        ],
        "errors": caller.errors,
    }
