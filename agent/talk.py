"""``rejoinder talk``: a conversation with this machine's own microphone and speaker, shown as it goes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rejoinder.agent.config import Settings
from rejoinder.agent.devices import (
    Converter,
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
from rejoinder.models.loading import Report, open_models
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    EndOfTurn,
    Event,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    PipelineError,
    ReplyAudio,
    ReplyDone,
    ReplyText,
    Session,
    SpeechStarted,
    TurnTraced,
    open_session,
)

HEADPHONES = "Wear headphones: echo is not cancelled here, and the agent would interrupt itself."


class Transcript:
    """The conversation as lines of text: those that are finished, and those that still change."""

    def __init__(self) -> None:
        self._user: Text | None = None
        self._agent: list[str] = []
        self._latency = ""

    def take(self, event: Event) -> list[Text]:
        """Take what happened; return the lines that this finished."""
        match event:
            case SpeechStarted():
                self._user = Text("…", "dim")
            case PartialTranscript(text, agreed):
                sure = agreed if text.startswith(agreed) else ""
                self._user = Text.assemble(sure, (text[len(sure) :], "dim"))
            case NothingSaid():
                self._user = None
            case EndOfTurn(text):
                self._user = None
                return [Text.assemble(("you    ", "cyan"), text)]
            case ReplyText(text=text):
                self._agent.append(text)
            case TurnTraced(trace) if budget := trace.budget():
                self._latency = f"  {sum(ms for _, ms in budget):.0f} ms"
            case ReplyDone():
                return [self._finish(event)]
        return []

    def changing(self) -> Group:
        """Return the lines that are not finished."""
        lines = []
        if self._agent:
            lines.append(Text.assemble(("agent  ", "green"), " ".join(self._agent)))
        if self._user is not None:
            lines.append(Text.assemble(("you    ", "cyan"), self._user))
        return Group(*lines)

    def _finish(self, done: ReplyDone) -> Text:
        """Return the reply's line: what was heard of it, what was cut struck, and why it failed if it did."""
        said = " ".join(self._agent)
        heard = done.heard if said.startswith(done.heard) else said
        cut = (said[len(heard) :], "dim strike")
        failure = (f" failed: {done.error}" if done.error else "", "red")
        line = Text.assemble(("agent  ", "green"), heard, cut, failure, (self._latency, "dim"))
        self._agent, self._latency = [], ""
        return line


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


async def record(session: Session, handover: Handover, source: Device) -> None:
    """Let the session hear the microphone. Raises NoDevice when that goes away."""
    converter, position = Converter(RATE), 0
    while (block := await handover.get()) is not None:
        chunk = AudioChunk(block, source.rate, position)
        position = chunk.end
        if pcm := converter.convert(chunk):
            await session.hear(pcm)
    raise NoDevice(f"{source.name} has stopped recording")


async def tell(session: Session, playback: Playback, rate: int, console: Console) -> None:
    """Play and show what happens in a session until it ends; ``rate`` is the speaker's, in hertz."""
    transcript, converter = Transcript(), Converter(rate)
    # Drawn when something happens, and by no thread of its own.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async for event in session.events:
            match event:
                case ReplyAudio(chunk=chunk):
                    playback.put(converter.convert(chunk))
                    continue
                case ReplyDone(status="completed"):
                    playback.put(converter.finish())
                case OverlapStarted():
                    playback.hold()
                case OverlapEnded():
                    playback.release()
                case SpeechStarted() | ReplyDone(status="cancelled" | "failed"):
                    playback.clear()
            finished = transcript.take(event)
            live.update(transcript.changing())  # first, or a finished line would be seen twice for a moment
            for line in finished:
                console.print(line)
            live.refresh()


async def talk(settings: Settings, source: Device, sink: Device, console: Console, report: Report) -> None:
    """Hold a conversation until it is cancelled. Raises NoDevice and ModelError."""
    async with open_models(settings.specs(), settings.threads(), report, settings.placement()) as models:
        source = at_rate("input", source, RATE)
        sink = at_rate("output", sink, getattr(models.tts, "rate", sink.rate))
        handover, playback = Handover(), Playback(sink.rate)
        try:
            options = replace(settings.options(), holds_audio=True, echo_gate=settings.echo_gate is not False)
            async with open_session(models, options) as session:
                with microphone(source, handover), speaker(sink, playback):
                    console.print(
                        f"{source.name} -> {sink.name}. {HEADPHONES} Ctrl-C ends.",
                        markup=False,
                        highlight=False,
                        soft_wrap=True,
                    )
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(record(session, handover, source))
                        tasks.create_task(tell(session, playback, sink.rate, console))
        finally:
            if handover.dropped or playback.dropped:
                late = f"{handover.dropped} blocks of the microphone, {playback.dropped} bytes of the speaker"
                console.print(f"This machine was too slow: {late} were dropped.")


def run(settings: Settings, source: str | None, sink: str | None, console: Console, report: Report) -> str:
    """Hold a conversation until Ctrl-C; return why it could not be held, or nothing.

    source, sink: number or part of the name of a device, None for the default.
    """
    try:
        # Before the models load: it is what most often fails.
        devices = choose("input", source), choose("output", sink)
        with suppress(KeyboardInterrupt):
            asyncio.run(talk(settings, *devices, console, report))
    except PipelineError as error:
        return str(error)
    console.print("Goodbye.")
    return ""
