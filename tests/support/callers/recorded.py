"""Calls in virtual time whose recordings are read back."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from support.serving import PATIENCE, Talk

from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.recording.folder import CallRecording, Folder
from rejoinder.agent.recording.recorder import RecordedCall
from rejoinder.agent.recording.recordings import Recordings
from rejoinder.agent.recording.sealing import key_id
from rejoinder.agent.recording.timeline import CallerAudio, RecordedBlock
from rejoinder.agent.settings.recording import Form, RecordingSettings
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.transport import Disconnected, Frame, Message
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTurnModel, ScriptedVad
from rejoinder.pipeline import RATE, AudioChunk, Models, Options
from rejoinder.pipeline.engines.load_shedding import LoadShedder

CLIENT_RATE = 24_000
FRAME_S = 0.02
DELTA = "response.output_audio.delta"
KEY = bytes(range(32))
Side = NDArray[np.float32]


def noise(seconds: float, rate: int, seed: int = 0) -> bytes:
    """Return noise that resembles itself at one place only."""
    return np.random.default_rng(seed).normal(0.0, 6000.0, int(seconds * rate)).astype("<i2").tobytes()


class NoiseTts:
    """A voice that says each clause as noise of its own: 0.06 s a character."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        await asyncio.sleep(0.05)
        pcm = noise(0.06 * len(text), CLIENT_RATE, seed=len(text))
        self.said.append((text, pcm))
        yield AudioChunk(pcm, CLIENT_RATE)


class Client:
    """A Realtime client with a microphone: it talks at given times, and notes when what arrives.

    says: begin and length of each sound in seconds. sends: other messages with their times. reacts: called
    with each event that arrives; it may return messages to send at once.
    """

    def __init__(
        self,
        says: list[tuple[float, float]],
        until: float,
        sends: list[tuple[float, dict[str, Any]]] | None = None,
        reacts: Callable[[float, dict[str, Any]], list[dict[str, Any]]] = lambda now, event: [],
    ) -> None:
        self.arrived: list[tuple[float, dict[str, Any]]] = []
        self._reacts = reacts
        self.sent: asyncio.Queue[str | Disconnected] = asyncio.Queue()
        silence = bytes(2 * int(until * CLIENT_RATE))
        microphone = bytearray(silence)
        for begin, seconds in says:
            place = 2 * int(begin * CLIENT_RATE)
            sound = noise(seconds, CLIENT_RATE, seed=int(begin * 1000))
            microphone[place : place + len(sound)] = sound
        self._microphone, self._sends, self._until = bytes(microphone), sends or [], until

    async def run(self) -> None:
        """Send audio and messages at their times, and leave."""
        began, size = asyncio.get_running_loop().time(), int(2 * FRAME_S * CLIENT_RATE)
        waiting = sorted(self._sends, key=lambda one: one[0])
        for frame in range(int(self._until / FRAME_S)):
            await asyncio.sleep(began + (frame + 1) * FRAME_S - asyncio.get_running_loop().time())
            while waiting and waiting[0][0] <= frame * FRAME_S:
                self.send(waiting.pop(0)[1])
            pcm = self._microphone[frame * size : (frame + 1) * size]
            self.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()})
        self.sent.put_nowait(Disconnected(1000))

    def send(self, message: dict[str, Any]) -> None:
        self.sent.put_nowait(json.dumps(message))

    def receive(self, event: dict[str, Any]) -> None:
        now = asyncio.get_running_loop().time()
        self.arrived.append((now, event))
        for message in self._reacts(now, event):
            self.send(message)

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event for _, event in self.arrived if event["type"] in types]

    def when(self, type_: str) -> list[float]:
        return [at for at, event in self.arrived if event["type"] == type_]

    @property
    def played(self) -> list[tuple[float, float]]:
        """When each reply plays, of a client that plays all audio that it receives at once."""
        spans: dict[str, tuple[float, float]] = {}
        for at, event in self.arrived:
            if event["type"] == DELTA:
                seconds = len(base64.b64decode(event["delta"])) / 2 / CLIENT_RATE
                begin, end = spans.get(event["item_id"], (at, at))
                spans[event["item_id"]] = (begin, max(end, at) + seconds)
        return list(spans.values())


class ClientSocket:
    """The server's end of a client's connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def receive(self) -> list[Frame] | Disconnected:
        sent = self._client.sent
        if isinstance(first := await sent.get(), Disconnected):
            return first
        frames: list[Frame] = [first]
        while not sent.empty():
            if isinstance(came := sent.get_nowait(), Disconnected):
                sent.put_nowait(came)
                break
            frames.append(came)
        return frames

    async def send(self, messages: Sequence[Message]) -> None:
        for event in messages:
            assert isinstance(event, dict), "Realtime sends text"
            self._client.receive(event)


class Recorded:
    """A call in virtual time, and its recordings."""

    def __init__(self, folder: Path, client: Client, options: Options | None = None, **settings: Any) -> None:
        self.client = client
        self.voice = NoiseTts()
        self.counted: list[str] = []
        given = {"recordings": str(folder), "recording": "always", **settings}
        self.recordings = Recordings(RecordingSettings(**given), self.counted.append)
        self._options = options or Options()

    def run(self, words: list[str], replies: list[str]) -> list[CallRecording]:
        """Hold the call; return its recordings."""
        virtual_clock.run(self._hold(words, replies))
        return self.recordings.folder.all()

    async def agent_call(self) -> AgentCall | None:
        """Return the agent's side of the call, None for none."""
        return None

    async def _hold(self, words: list[str], replies: list[str]) -> None:
        models = Models(
            ScriptedVad(),
            ScriptedStt(words),
            ScriptedLlm(replies),
            self.voice,
            ScriptedTurnModel(),
            load_shedder=LoadShedder(),
        )
        agent = await self.agent_call()
        wire = Realtime(self._options)
        about = RecordedCall("call-1", "realtime", "+4930123456", "+49800")
        recorder = self.recordings.recorder(about)
        socket = ClientSocket(self.client)
        call = Call(socket, models, wire.options(), wire, None, agent=agent, recorder=recorder)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.recordings.running())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.client.run())
                assert await call.run() == (0, "")
            with virtual_clock.standing_still():
                await stack.aclose()

    @property
    def said_seconds(self) -> float:
        """Seconds of all that the voice has said."""
        return sum(len(pcm) for _, pcm in self.voice.said) / 2 / CLIENT_RATE

    def sides(self, recording: CallRecording) -> tuple[Side, Side]:
        """Return what a recording has of the caller and of the agent, at 16 kHz."""
        with self.recordings.folder.open(recording, self.recordings.keys) as file:
            audio, rate = soundfile.read(file, dtype="float32")
        assert rate == RATE and audio.shape[1] == 2
        return audio[:, 0], audio[:, 1]


def place(side: Side, pcm: bytes, rate: int = CLIENT_RATE, seconds: float = 0.3) -> float:
    """Return where audio is in one side of a recording, in seconds, by its first ``seconds``."""
    wanted = np.frombuffer(pcm, "<i2")[: int(seconds * rate)].astype(np.float32)
    times = np.arange(int(seconds * RATE)) / RATE
    resampled = np.interp(times, np.arange(len(wanted)) / rate, wanted)
    size = len(side) + len(resampled)
    matched = np.fft.irfft(np.fft.rfft(side, size) * np.conj(np.fft.rfft(resampled, size)), size)[: len(side)]
    return float(np.argmax(matched)) / RATE


def loud(side: Side) -> list[tuple[float, float]]:
    """Return when one side is not silent, in seconds; gaps of less than 50 ms do not count."""
    heard = np.nonzero(np.abs(side) > 0.01)[0] / RATE
    if not len(heard):
        return []
    cuts = np.nonzero(np.diff(heard) > 0.05)[0]
    begins = [heard[0], *heard[cuts + 1]]
    ends = [*heard[cuts], heard[-1]]
    return [(round(float(a), 3), round(float(b), 3)) for a, b in zip(begins, ends, strict=True)]


def blocks(seconds: int) -> list[RecordedBlock]:
    """Return noise of the caller in blocks of two seconds."""
    random = np.random.default_rng(0)
    size = 2 * RATE
    return [
        RecordedBlock(
            first,
            first + size,
            [CallerAudio(first, random.normal(0, 6000, size).astype("<i2").tobytes())],
            [],
        )
        for first in range(0, seconds * RATE, size)
    ]


def recording(form: Form, key: bytes | None, **known: object) -> CallRecording:
    """Return what is known of a recording."""
    given = {"id": "20261123T120000Z-0123456789ab", "form": form, "key": key_id(key).hex() if key else ""}
    return CallRecording.model_validate({**given, **known})


def talk(call: Talk, seconds: float) -> tuple[float, float, bytes]:
    """Ask in real time; return when the question and its answer began, and the question.

    Times are those of the client, which plays the answer as soon as it arrives.
    """
    asked, size = noise(0.8, CLIENT_RATE, seed=5), int(2 * FRAME_S * CLIENT_RATE)
    sound = bytes(2 * CLIENT_RATE // 2) + asked + bytes(int(2 * seconds * CLIENT_RATE))
    began, answered = time.monotonic(), 0.0
    for frame in range(int(seconds / FRAME_S)):
        due = began + (frame + 1) * FRAME_S
        call.append(sound[frame * size : (frame + 1) * size])
        while (left := due - time.monotonic()) > 0:
            try:
                event = call.event(left)
            except TimeoutError:
                break
            if event["type"] == DELTA and not answered:
                answered = time.monotonic()
    return began + 0.5, answered, asked


def only(folder: Path) -> CallRecording:
    """Return the recording in a folder, once it is complete."""
    deadline = time.monotonic() + PATIENCE
    while not ((found := Folder(folder).all()) and found[0].ended):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    (recording,) = found
    return recording
