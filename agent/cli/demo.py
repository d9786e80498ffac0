"""``rejoinder demo``: a conversation without a microphone, over a WebSocket, in real time.

The caller is a second voice. It speaks a script into the server's WebSocket and interrupts the agent once.
All output and measurements are from the client's side.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.callers.turns import HeardReply
from rejoinder.agent.bench.cases.recordings import speech_end
from rejoinder.agent.bench.latency import client_parts
from rejoinder.agent.bench.reports import timeline
from rejoinder.agent.bench.reports.timeline import AGENT, CALLER, Gap, Interruption, SpokenSpan, Timeline
from rejoinder.agent.bench.reports.waterfall import Parts, mean_parts, ms, summarise, waterfall
from rejoinder.agent.cli.views.answered_by import answered_by
from rejoinder.agent.cli.views.demo import show
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.config import load
from rejoinder.agent.server.own_server import own_server
from rejoinder.models.registry import create
from rejoinder.models.threads import plan
from rejoinder.pipeline.audio.chunk import Samples

OPENING_SECONDS = 0.8
"""Silence before the first line."""
BETWEEN_SECONDS = 0.7
"""Silence between the end of a reply and the next line."""
FIRST_SOUND_SECONDS = 10.0
"""Longest wait for the first sound of a reply."""
LONGEST_REPLY_SECONDS = 30.0
"""Longest wait for the end of a reply."""


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A line of the caller.

    interrupts: seconds of the previous reply after which the caller says it; None: after the whole reply.
    """

    text: str
    interrupts: float | None = None


SCRIPT = (
    ScriptLine("Hello, what can you do for me?"),
    ScriptLine("Could you tell me something about the ocean?"),
    ScriptLine("That is lovely, thank you so much, goodbye!", interrupts=1.2),
)
"""The lines of the demo."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A line of the caller and its reply.

    begin, end: first sample of the line, and the sample after its last speech, in the call. reply: None if
    the agent did not answer. first: the first audible sample of the reply, None if there is none.
    """

    line: ScriptLine
    begin: int
    end: int
    reply: HeardReply | None
    first: int | None

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds from the last sample of speech to the first audible sample of the reply."""
        return None if self.first is None else (self.first - self.end) * 1000 / CLIENT_RATE

    @property
    def parts(self) -> Parts:
        """The latency in parts; empty if the server does not send its trace."""
        if self.reply is None or self.latency_ms is None:
            return []
        return client_parts(self.reply, self.end, self.latency_ms)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exchanges of a demo, and the files that it wrote."""

    exchanges: tuple[Exchange, ...]
    wav: Path
    png: Path


async def demo(
    *,
    llm: str | None = None,
    stt: str | None = None,
    tts: str | None = None,
    turn: str | None = None,
    profile: str | None = None,
    config: Path | None = None,
    out: Path | None = None,
    console: Console | None = None,
    script: Sequence[ScriptLine] = SCRIPT,
) -> Outcome:
    """Start a server, hold a conversation with it, and write a WAV and a PNG of the conversation.

    llm, stt, tts, turn, profile, config: as for ``rejoinder serve``. out: folder of the files; the default is
    out/demo-DATE-TIME. Cancelling ends the call and the server. Raises PipelineError.
    """
    timeline.check()  # fails before the conversation rather than after it
    console = console or Console()
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn, "profile": profile}
    settings, _ = load(flags, config)
    flags["config"] = str(config) if config else None
    async with own_server(flags, console) as url:
        said = await _voice("hibari" if settings.tts.startswith("piper") else "piper", script)
        async with open_call(url) as caller:
            async with show(caller, console):
                exchanges = await converse(caller, script, said)
            picture = _timeline(caller, exchanges)
    folder = out or Path("out") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    outcome = Outcome(tuple(exchanges), folder / "call.wav", folder / "call.png")
    _write(outcome, picture)
    _report(outcome, console)
    return outcome


async def converse(
    caller: LiveCaller, script: Sequence[ScriptLine], said: Sequence[Samples]
) -> list[Exchange]:
    """Say each line after the reply to the previous line, or during it. Returns what came of each line.

    said: audio of each line, mono float32 of shape (n,) at ``CLIENT_RATE``. Cancelling leaves the call open.
    """
    exchanges: list[Exchange] = []
    await caller.until(lambda: caller.now >= OPENING_SECONDS * CLIENT_RATE, OPENING_SECONDS + 1)
    for line, audio in zip(script, said, strict=True):
        if exchanges and exchanges[-1].reply is not None:
            await _listen(caller, exchanges[-1].reply, line.interrupts)
        begin = caller.say(audio)
        end = begin + speech_end(audio, CLIENT_RATE)
        await caller.until(partial(_is_answered, caller, end), len(audio) / CLIENT_RATE + FIRST_SOUND_SECONDS)
        exchanges.append(Exchange(line, begin, end, caller.answer(end), _first(caller, end)))
    if (reply := exchanges[-1].reply) is not None:
        await _listen(caller, reply, None)
    return exchanges


async def _listen(caller: LiveCaller, reply: HeardReply, seconds: float | None) -> None:
    """Wait until a reply and a short silence are over, or until ``seconds`` of it are played."""
    first = caller.player.first_audible(reply.item)

    def enough() -> bool:
        if seconds is not None and first is not None and caller.now >= first + seconds * CLIENT_RATE:
            return True
        return bool(reply.status) and caller.now >= caller.player.end + BETWEEN_SECONDS * CLIENT_RATE

    await caller.until(enough, LONGEST_REPLY_SECONDS)


def _is_answered(caller: LiveCaller, end: int) -> bool:
    return _first(caller, end) is not None


def _first(caller: LiveCaller, end: int) -> int | None:
    """Return the first audible sample of the answer to the words before ``end``, None before it is played."""
    reply = caller.answer(end)
    first = caller.player.first_audible(reply.item) if reply else None
    return first if first is not None and first <= caller.now else None


async def _voice(spec: str, script: Sequence[ScriptLine]) -> list[Samples]:
    """Synthesise the caller's lines in advance, so that the voice does not compete with the agent."""
    import soxr

    voice = create(spec, plan())
    try:
        said = []
        for line in script:
            async with aclosing(voice.speak(line.text)) as chunks:
                spoken = [soxr.resample(chunk.samples(), chunk.rate, CLIENT_RATE) async for chunk in chunks]
            said.append(np.concatenate(spoken).astype(np.float32))
        return said
    finally:
        voice.close()


def _timeline(caller: LiveCaller, exchanges: Sequence[Exchange]) -> Timeline:
    said, heard = caller.tracks()
    spoken = [
        SpokenSpan(CALLER, one.begin / CLIENT_RATE, one.end / CLIENT_RATE, one.line.text) for one in exchanges
    ]
    interruptions = []
    for reply in caller.replies:
        begin, end = caller.player.first_audible(reply.item), caller.player.last_sample(reply.item)
        if begin is None or end is None:
            continue
        words = caller.heard(reply)
        unheard = reply.text[len(words) :].strip() if reply.cut else ""
        spoken.append(SpokenSpan(AGENT, begin / CLIENT_RATE, end / CLIENT_RATE, words.strip(), unheard))
        if reply.cut:
            lines = [one.begin for one in exchanges if begin < one.begin <= reply.cut.at]
            interruptions.append(
                Interruption(lines[-1] / CLIENT_RATE if lines else None, reply.cut.at / CLIENT_RATE)
            )
    gaps = [Gap(one.end / CLIENT_RATE, one.first / CLIENT_RATE) for one in exchanges if one.first is not None]
    return Timeline(said, heard, CLIENT_RATE, spoken, gaps, interruptions)


def _write(outcome: Outcome, picture: Timeline) -> None:
    import soundfile

    outcome.wav.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(outcome.wav, np.stack((picture.said, picture.heard), axis=1), CLIENT_RATE)
    timeline.draw(picture, outcome.png)


def _report(outcome: Outcome, console: Console) -> None:
    turns = [one.parts for one in outcome.exchanges if one.parts]
    if turns:
        console.print(waterfall(mean_parts(turns), "Where the time goes, in ms", turns))
    for number, one in enumerate(outcome.exchanges, 1):
        if one.reply and (names := answered_by(one.reply.models, one.reply.counts)):
            console.print(f"turn {number}: language model {names}", highlight=False)
    latencies = [one.latency_ms for one in outcome.exchanges if one.latency_ms is not None]
    summary = summarise(latencies)
    console.print(
        f"last word to first sound: p50 {ms(summary.p50)} ms, p95 {ms(summary.p95)} ms; "
        f"{len(latencies)} of {len(outcome.exchanges)} turns answered",
        highlight=False,
    )
    for path, what in ((outcome.wav, "caller left, agent right"), (outcome.png, "the call as a picture")):
        console.print(f"{path}  ({what})", highlight=False, soft_wrap=True)
