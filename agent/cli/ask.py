"""``rejoinder ask``: a conversation from an audio file to an audio file, without a server or a microphone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rejoinder.agent.cli.views.answered_by import answered_by
from rejoinder.agent.config import Settings
from rejoinder.agent.simulate.lockstep import Lockstep
from rejoinder.models.loading import Report, open_models
from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    Event,
    Models,
    Options,
    PipelineError,
    ReplyAudio,
    ReplyDone,
    TurnTraced,
    open_session,
    to_pcm,
)
from rejoinder.pipeline.audio.chunk import Samples

MORE_SECONDS = 0.5
"""Silence after the recording, in seconds, in addition to the longest wait for the end of a turn."""

Say = Callable[[str], None]


class UnusableFile(PipelineError):
    """The question cannot be read or the reply cannot be written. The message gives the reason."""


@dataclass(slots=True)
class RecordedConversation:
    """The conversation so far.

    turns: number of user turns. pcm: audio of all replies, 16-bit mono at ``rate`` hertz.
    error: reason of the last failure, "" for none.
    """

    turns: int = 0
    pcm: bytearray = field(default_factory=bytearray)
    rate: int = 0
    error: str = ""
    _latency: str = ""

    def take(self, event: Event, received: int, say: Say) -> None:
        """Add an event that occurred at sample ``received`` of the recording, and print lines about it."""
        match event:
            case EndOfTurn(text, at):
                self.turns += 1
                say(f"you:     {text}")
                say(f"         (ended by {(received - at) / RATE * 1000:.0f} ms of silence)")
            case ReplyAudio(chunk=chunk):
                self.pcm += chunk.pcm
                self.rate = chunk.rate
            case TurnTraced(trace):
                parts = [f"{name} {ms:.0f}" for name, ms in trace.budget() if ms >= 1]
                total = sum(ms for _, ms in trace.budget())
                self._latency = f"{total:.0f} ms of work before the first sound ({', '.join(parts)})"
                if names := answered_by(trace.models, trace.counts):
                    self._latency += f"; language model: {names}"
            case ReplyDone(heard=heard, error=error):
                self.error = error or self.error
                say(f"agent:   {heard}")
                say(f"latency: {self._latency}")


def read_audio(path: Path) -> Samples:
    """Return a file's audio as mono float32 of shape (n,) at 16 kHz. Raises UnusableFile."""
    import soundfile
    import soxr

    if not path.is_file():
        raise UnusableFile(f"there is no file {path}")
    try:
        audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise UnusableFile(f"cannot read {path} as audio: {getattr(error, 'error_string', error)}") from error
    if not len(audio):
        raise UnusableFile(f"{path} holds no audio")
    mono = np.nan_to_num(audio.mean(axis=1), nan=0.0, posinf=1.0, neginf=-1.0)
    samples: Samples = soxr.resample(mono, rate, RATE).astype(np.float32)
    return samples


def check_writable(path: Path) -> None:
    """Raise UnusableFile if a reply cannot be written to ``path``; runs before the models load."""
    import soundfile

    formats = soundfile.available_formats()
    if path.suffix[1:].upper() not in formats:
        raise UnusableFile(f"cannot write {path}: end its name in .wav, .flac or .ogg")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UnusableFile(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise UnusableFile(f"cannot write {path}: it is a folder, or you may not write there")


def write_audio(path: Path, pcm: bytes, rate: int) -> None:
    """Write 16-bit mono audio in the format that the file's extension names. Raises UnusableFile."""
    import soundfile

    try:
        soundfile.write(path, np.frombuffer(pcm, dtype="<i2"), rate)
    except (OSError, soundfile.SoundFileError) as error:
        raise UnusableFile(f"cannot write {path}: {getattr(error, 'error_string', error)}") from error


async def ask(models: Models, options: Options, audio: Samples, say: Say) -> RecordedConversation:
    """Hold a conversation in which the caller is a recording; pass lines about it to ``say``.

    audio: float32 of shape (n,) at 16 kHz. The recording pauses while a model works, so that its turns are
    the same on any machine. It also pauses while the agent answers, so that a second question waits for the
    first answer. Replies arrive at the pace of speech. Cancelling ends the conversation. Raises ModelError
    if a listening model fails.
    """
    conversation = RecordedConversation()
    silence = options.endpointing.max_wait_ms / 1000 + MORE_SECONDS
    pcm = to_pcm(audio) + bytes(2 * int(silence * RATE))
    lockstep = Lockstep()
    async with open_session(lockstep.wrap(models), options) as session:

        def take(event: Event) -> None:
            conversation.take(event, session.received, say)

        await lockstep.feed(session, pcm, take)
    return conversation


def run(settings: Settings, question: Path, out: Path, say: Say, complain: Say, report: Report) -> int:
    """Ask the question in one file, write the reply to another, and return the exit code.

    0: the reply was written. 1: no words were recognised, or a model is missing or failed. 2: a file is
    unusable.
    """

    async def converse(audio: Samples) -> RecordedConversation:
        async with open_models(settings.specs(), settings.threads(), report, settings.placement()) as models:
            options = settings.options()
            voices = replace(options.endpointing, speakers="many")  # a file may have several
            options = replace(options, greeting="", endpointing=voices)  # a question needs no greeting
            return await ask(models, options, audio, say)

    try:
        check_writable(out)
        conversation = asyncio.run(converse(read_audio(question)))
        if conversation.pcm:
            write_audio(out, bytes(conversation.pcm), conversation.rate)
            say(f"{out}: {len(conversation.pcm) / 2 / conversation.rate:.1f} s at {conversation.rate} Hz")
    except UnusableFile as error:
        complain(str(error))
        return 2
    except PipelineError as error:
        complain(str(error))
        return 1
    if not conversation.turns:
        complain(f"no words were heard in {question}")
    elif conversation.error or not conversation.pcm:
        complain(f"the reply failed: {conversation.error or 'it has no sound'}")
    else:
        return 0
    return 1
