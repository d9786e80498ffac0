"""``rejoinder talk``: a call to a server over this machine's own microphone and speaker, shown as it goes.

The server is one of its own, on loopback and for as long as the call lasts, or any that ``--url`` names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rejoinder.agent.cli.views.talk import Transcript
from rejoinder.agent.client.client import RATE, Call, CallLost, connect
from rejoinder.agent.client.devices import (
    Device,
    Handover,
    NoDevice,
    Playback,
    at_rate,
    choose,
    list_devices,
    microphone,
    speaker,
)
from rejoinder.agent.client.events import (
    AgentAudio,
    OutputPaused,
    OutputResumed,
    Reconnected,
    ReplyDone,
    SpeechStarted,
)
from rejoinder.agent.client.loudspeaker import Loudspeaker
from rejoinder.agent.client.socket import realtime_url
from rejoinder.agent.config import TOY_NOTE, TOYS, Settings
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError, first_error

HEADPHONES = "Headphones are best: with a loudspeaker the agent may interrupt itself."
BACKLOG_SECONDS = 60.0
"""Audio of a server elsewhere that may wait: it may come as fast as it is spoken, or late and at once."""


def list_or_complaint(console: Console) -> str:
    """Print the sound devices; return why there are none, or nothing."""
    try:
        found = list_devices()
    except NoDevice as error:
        return str(error)
    table = Table("number", "name", "microphone", "speaker", "hertz")
    for device, inputs, outputs in found:
        marks = ("yes" if inputs else "", "yes" if outputs else "")
        table.add_row(str(device.number), Text(device.name), *marks, str(device.rate))
    console.print(table)
    return ""


def holding(url: str) -> str:
    """Return a server's address as one that can pause its speaker calls it. Raises ValueError."""
    parts = urlsplit(realtime_url(url))
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, "hold=true&trace=true")))))


async def record(call: Call, handover: Handover, source: Device) -> None:
    """Send the microphone's audio. Raises NoDevice when that goes away, CallLost when the call does."""
    while (block := await handover.get()) is not None:
        await call.send_audio(block, source.rate)
    raise NoDevice(f"{source.name} has stopped recording")


async def tell(call: Call, playback: Playback, rate: int, console: Console) -> None:
    """Play and show what happens in a call; ``rate`` is the speaker's, in hertz. It ends with CallLost."""
    transcript, loudspeaker = Transcript(), Loudspeaker(playback, rate)
    # Drawn when something happens, and by no thread of its own.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        try:
            async for event in call:
                match event:
                    case AgentAudio(item=item, pcm=pcm):
                        loudspeaker.play(item, pcm)
                        continue
                    case OutputPaused():
                        playback.hold()
                    case OutputResumed():
                        playback.release()
                    case Reconnected(missed=True):
                        loudspeaker.cut()
                    case ReplyDone(status="completed" | "incomplete"):
                        loudspeaker.finish()
                    case SpeechStarted() | ReplyDone():
                        await interrupt(call, loudspeaker, transcript.item)
                finished = transcript.take(event)
                # First, or a finished line would be seen twice for a moment.
                live.update(transcript.changing())
                for line in finished:
                    console.print(line)
                live.refresh()
        finally:
            live.update("")
            for line in transcript.finish():
                console.print(line)
    raise CallLost(call.over)


async def interrupt(call: Call, loudspeaker: Loudspeaker, shown: str) -> None:
    """Fall silent, say how much was played, and ask what the agent has said by that."""
    for item, played_ms in loudspeaker.cut():
        await call.truncate(item, played_ms)
    if shown:
        await call.send({"type": "conversation.item.retrieve", "item_id": shown})


async def talk(
    url: str, key: str | None, source: Device, sink: Device, console: Console, elsewhere: bool
) -> None:
    """Hold a conversation until it is cancelled. Raises NoDevice and CallLost.

    elsewhere: whether the server may be there again when the connection is lost.
    """
    source, sink = at_rate("input", source, RATE), at_rate("output", sink, RATE)
    handover = Handover()
    playback = Playback(sink.rate, BACKLOG_SECONDS) if elsewhere else Playback(sink.rate)
    try:
        async with connect(url, key, reconnect_s=60.0 if elsewhere else 0.0) as call:
            with microphone(source, handover), speaker(sink, playback):
                console.print(
                    f"{source.name} -> {sink.name}. {HEADPHONES} Ctrl-C ends.",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(record(call, handover, source))
                    tasks.create_task(tell(call, playback, sink.rate, console))
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        if handover.dropped or playback.dropped:
            late = f"{handover.dropped} blocks of the microphone, {playback.dropped} bytes of the speaker"
            console.print(f"This machine was too slow: {late} were dropped.")


async def _at_home(
    flags: Mapping[str, str | None], settings: Settings, devices: tuple[Device, Device], console: Console
) -> None:
    # Nothing else cancels echo here, so it is on unless the configuration says otherwise.
    environment = {
        "REJOINDER_ECHO_GATE": str(settings.echo_gate is not False),
        "REJOINDER_GREETING": settings.greeting,
    }
    async with own_server(flags, console, environment) as url:
        if settings.llm in TOYS:
            console.print(TOY_NOTE, highlight=False)
        await talk(url, None, *devices, console, elsewhere=False)


def run(
    flags: Mapping[str, str | None],
    settings: Settings,
    source: str | None,
    sink: str | None,
    console: Console,
    server: tuple[str, str | None] | None = None,
) -> str:
    """Hold a conversation until Ctrl-C; return why it could not be held, or nothing.

    flags: of ``rejoinder serve``, for a server of its own. source, sink: number or part of the name of a
    device, None for the default. server: the address of another one, and a key.
    """
    try:
        # Before the models load: it is what most often fails.
        devices = choose("input", source), choose("output", sink)
        with suppress(KeyboardInterrupt):
            if server is None:
                asyncio.run(_at_home(flags, settings, devices, console))
            else:
                asyncio.run(talk(holding(server[0]), server[1], *devices, console, elsewhere=True))
    except PipelineError as error:
        return str(error)
    console.print("Goodbye.")
    return ""
