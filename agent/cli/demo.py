"""``rejoinder demo``: a conversation without a microphone, over a WebSocket, in real time.

The caller is a second voice. It speaks a script into the server's WebSocket and interrupts the agent once.
All output and measurements are from the client's side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import soundfile
import soxr
from rich.console import Console

from rejoinder.agent.bench.callers.caller import LiveCaller, open_call
from rejoinder.agent.bench.callers.script import Exchange, ScriptLine, converse
from rejoinder.agent.bench.reports.timeline import (
    AGENT,
    CALLER,
    Gap,
    Interruption,
    SpokenSpan,
    Timeline,
    check,
    draw,
)
from rejoinder.agent.cli.views.demo import print_latency, show
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.config import Settings
from rejoinder.agent.server.own_server import own_server
from rejoinder.models.registry import create
from rejoinder.models.threads import plan
from rejoinder.pipeline.audio.chunk import Samples

SCRIPT = (
    ScriptLine("Hello, what can you do for me?"),
    ScriptLine("Could you tell me something about the ocean?"),
    ScriptLine("That is lovely, thank you so much, goodbye!", interrupts=1.2),
)
"""The lines of the demo."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exchanges of a demo, the call as a picture shows it, and the files that the demo wrote."""

    exchanges: tuple[Exchange, ...]
    call: Timeline
    wav: Path
    png: Path


async def demo(
    flags: Mapping[str, str | None],
    settings: Settings,
    *,
    out: Path | None = None,
    console: Console | None = None,
    script: Sequence[ScriptLine] = SCRIPT,
) -> Outcome:
    """Start a server, hold a conversation with it, and write a WAV and a PNG of the conversation.

    flags: of ``rejoinder serve``. settings: those that follow from the flags. out: folder of the files; the
    default is out/demo-DATE-TIME. Cancelling ends the call and the server. Raises PipelineError.
    """
    check()  # fails before the conversation rather than after it
    console = console or Console()
    async with own_server(flags, console) as url:
        said = await _voice("hibari" if settings.tts.startswith("piper") else "piper", script)
        async with open_call(url) as caller:
            async with show(caller, console):
                exchanges = await converse(caller, script, said)
            call = _timeline(caller, exchanges)
    folder = out or Path("out") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(tuple(exchanges), call, folder / "call.wav", folder / "call.png")
    soundfile.write(outcome.wav, np.stack((call.said, call.heard), axis=1), CLIENT_RATE)
    draw(call, outcome.png)
    print_latency(exchanges, console)
    for path, what in ((outcome.wav, "caller left, agent right"), (outcome.png, "the call as a picture")):
        console.print(f"{path}  ({what})", highlight=False, markup=False, soft_wrap=True)
    return outcome


async def _voice(spec: str, script: Sequence[ScriptLine]) -> list[Samples]:
    """Synthesise the caller's lines in advance, so that the voice does not compete with the agent."""
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
