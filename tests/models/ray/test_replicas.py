"""What a replica does with audio that comes out of order, twice, or from a session that it does not know."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from rejoinder.models.ray.messages import Missing, TurnAudio, Work, work
from rejoinder.models.ray.names import application, kind_of
from rejoinder.models.ray.recogniser import SentTurn
from rejoinder.models.ray.replicas import RemoteTurn, Replica
from rejoinder.models.ray.voice import after
from rejoinder.models.registry import check
from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.engines import deadline
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Transcript

WORK = Work(None, False, "")


class Listener:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[AudioChunk] = []

    def feed(self, chunk: AudioChunk) -> None:
        self.heard.append(chunk)

    async def transcribe(self, is_final: bool) -> Transcript:
        left = deadline.current.get()
        return Transcript(f"{sum(map(len, self.heard))} {left and left.slack}", is_final, self.heard[-1].end)

    def reset(self) -> None:
        self.heard.clear()


def audio(at: int, samples: int, turn: int = 0, session: str = "a", slack: float | None = None) -> TurnAudio:
    return TurnAudio(session, turn, at, 1000, b"\1\0" * samples, False, Work(slack, False, "call"))


def test_each_sample_is_heard_once() -> None:
    async def listen() -> None:
        listener = Listener()
        turn = RemoteTurn(listener)
        assert await turn.transcribe(audio(0, 320)) == Transcript("320 None", False, 1320)
        assert await turn.transcribe(audio(0, 480)) == Transcript("480 None", False, 1480), "sent again"
        assert await turn.transcribe(audio(320, 160)) == Transcript("480 None", False, 1480), "overtaken"
        assert await turn.transcribe(audio(480, 0, slack=0.25)) == Transcript("480 0.25", False, 1480)
        assert [chunk.start for chunk in listener.heard] == [1000, 1320]

    asyncio.run(listen())


def test_audio_that_a_replica_does_not_have_is_asked_for() -> None:
    async def listen() -> None:
        turn = RemoteTurn(Listener())
        assert await turn.transcribe(audio(320, 160)) == Missing(0)
        await turn.transcribe(audio(0, 320))
        assert await turn.transcribe(audio(640, 160)) == Missing(320)
        assert await turn.transcribe(audio(0, 80, turn=1)) == Transcript("80 None", False, 1080)
        assert await turn.transcribe(audio(320, 160, turn=0)) == Transcript("", False, 1000), "the last turn"
        assert await turn.transcribe(audio(80, 80, turn=1)) == Transcript("160 None", False, 1160)

    asyncio.run(listen())


def test_a_replica_forgets_the_session_that_was_silent_longest() -> None:
    async def listen() -> None:
        replica = Replica("scripted:stt|hello", most=2)
        assert await replica.ready() == "stt"
        for session in ("0", "1"):
            await replica.transcribe(audio(0, 320, session=session))
        await replica.transcribe(audio(320, 320, session="0"))
        await replica.transcribe(audio(0, 320, session="new"))
        assert isinstance(await replica.transcribe(audio(640, 320, session="0")), Transcript)
        assert await replica.transcribe(audio(320, 320, session="1")) == Missing(0)

    asyncio.run(listen())


def test_a_session_sends_what_the_replica_does_not_have() -> None:
    turn = SentTurn(3)
    turn.add(AudioChunk(b"\1\0" * 160, 16_000, 500))
    turn.add(AudioChunk(b"\2\0" * 160, 16_000, 660))
    assert (turn.start, turn.length, turn.unsent()) == (500, 320, b"\1\0" * 160 + b"\2\0" * 160)
    turn.sent = 160
    assert turn.unsent() == b"\2\0" * 160


def test_a_deadline_is_given_as_the_time_that_is_left() -> None:
    async def ask() -> Work:
        deadline.current.set(Deadline(due=asyncio.get_running_loop().time() + 1000.0, frugal=True))
        return work()

    found = asyncio.run(ask())
    assert found.slack == pytest.approx(1000.0, abs=60.0) and found.frugal
    with found.applied():
        given = deadline.current.get()
        assert given and given.slack == found.slack and given.frugal
    assert deadline.current.get() is None


def test_what_was_heard_of_a_clause_is_left_out() -> None:
    chunk = AudioChunk(b"\1\0\2\0\3\0", 22_050, 10)
    assert after(chunk, 0) == chunk and after(chunk, 10) == chunk
    assert after(chunk, 12) == AudioChunk(b"\3\0", 22_050, 12)
    assert after(chunk, 13) is None


def test_an_error_is_the_same_in_another_process() -> None:
    error = ModelError("piper", "no voice", "model_timeout")
    error.role = "voice"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ModelError and str(again) == "piper: no voice"
    assert (again.adapter, again.code, again.role) == ("piper", "model_timeout", "voice")


def test_specs_name_deployments() -> None:
    assert application("whisper:tiny.en") == "rejoinder-whisper-tiny.en"
    assert application("piper:./voices/ä b.onnx") == "rejoinder-piper-.-voices-b.onnx"
    assert [
        kind_of(spec) for spec in ("hibari:heart", "smart-turn", "scripted:stt|x", "silero", "ort:x")
    ] == [
        "tts",
        "turn",
        "stt",
        "",
        "",
    ]
    with pytest.raises(ModelError, match="ray"):
        check("stt", "ray:silero")
