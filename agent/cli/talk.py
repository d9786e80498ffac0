"""``rejoinder talk``: a call over this machine's microphone and speaker, with a live transcript.

The command starts a server on loopback for the length of the call, or calls the server at ``--url``.
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

from rejoinder.agent.cli.views.talk import TranscriptView
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.call import Call, connect
from rejoinder.agent.client.devices import (
    Device,
    NoDevice,
    at_rate,
    choose_device,
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
from rejoinder.agent.client.handover import Handover
from rejoinder.agent.client.loudspeaker import Loudspeaker
from rejoinder.agent.client.playback import Playback
from rejoinder.agent.client.socket import CallLost, realtime_url
from rejoinder.agent.config import TOY_NOTE, Settings
from rejoinder.agent.language_models import TOYS
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.errors import PipelineError, first_error

HEADPHONES = "Headphones are best: with a loudspeaker the agent may interrupt itself."
"""Advice that is printed when a call begins."""
BACKLOG_SECONDS = 60.0
"""Most audio of a remote server that waits for the speaker, in seconds: it may arrive in bursts."""


def list_or_complaint(console: Console) -> str:
    """Print the sound devices. Return the reason if there are none, else ""."""
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
    """Return the Realtime address for a client that can pause its speaker. Raises ValueError."""
    parts = urlsplit(realtime_url(url))
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, "hold=true&trace=true")))))


async def record(call: Call, handover: Handover, source: Device) -> None:
    """Send the microphone's audio until cancelled.

    Raises NoDevice when the microphone stops, and CallLost when the call is lost.
    """
    while (block := await handover.get()) is not None:
        await call.send_audio(block, source.rate)
    raise NoDevice(f"{source.name} has stopped recording")


async def show(call: Call, playback: Playback, rate: int, console: Console) -> None:
    """Play the agent's audio and show the transcript. Raises CallLost when the call ends.

    rate: of the speaker, in hertz. Cancelling prints the unfinished lines.
    """
    transcript, loudspeaker = TranscriptView(), Loudspeaker(playback, rate)
    call.follow_playback(loudspeaker.position)
    # Each event redraws the lines; there is no refresh thread.
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
                        loudspeaker.clear()
                    case ReplyDone(status="completed" | "incomplete"):
                        loudspeaker.finish()
                    case SpeechStarted() | ReplyDone():
                        await interrupt(call, loudspeaker, transcript.item)
                finished = transcript.take(event)
                # Before the finished lines are printed: otherwise they would appear twice for a moment.
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
    """Stop the speaker, report how much was played, and request the transcript of that part.

    shown: the item of the unfinished line, "" for none. Cancelling may leave some reports unsent.
    """
    for item, played_ms in loudspeaker.cut():
        await call.truncate(item, played_ms)
    if shown:
        await call.send({"type": "conversation.item.retrieve", "item_id": shown})


async def talk(
    url: str, key: str | None, source: Device, sink: Device, console: Console, elsewhere: bool
) -> None:
    """Hold a conversation. Cancelling hangs up. Raises NoDevice and CallLost.

    elsewhere: whether the server is remote, so that a lost connection is worth reopening.
    """
    source, sink = at_rate("input", source, CLIENT_RATE), at_rate("output", sink, CLIENT_RATE)
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
                    tasks.create_task(show(call, playback, sink.rate, console))
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        if handover.dropped or playback.dropped:
            lost = f"{handover.dropped} blocks of microphone audio and {playback.dropped} bytes of speech"
            console.print(f"This machine was too slow: the call dropped {lost}.")


async def _with_own_server(
    flags: Mapping[str, str | None], settings: Settings, devices: tuple[Device, Device], console: Console
) -> None:
    # No other part of this program cancels echo, so the gate is on unless the configuration turns it off.
    environment = {
        "REJOINDER_ECHO_GATE": str(settings.echo_gate is not False),
        "REJOINDER_GREETING": settings.greeting,
    }
    async with own_server(flags, console, environment) as url:
        if settings.language_models()[0] in TOYS:
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
    """Hold a conversation until Ctrl-C. Return the reason if it failed, else "".

    flags: of ``rejoinder serve``, for the server that this starts. source, sink: number or part of the name
    of a device, None for the default. server: address and key of a running server to call instead.
    """
    try:
        # Before the models load, because this fails most often.
        devices = choose_device("input", source), choose_device("output", sink)
        with suppress(KeyboardInterrupt):
            if server is None:
                asyncio.run(_with_own_server(flags, settings, devices, console))
            else:
                asyncio.run(talk(holding(server[0]), server[1], *devices, console, elsewhere=True))
    except PipelineError as error:
        return str(error)
    console.print("Goodbye.")
    return ""
