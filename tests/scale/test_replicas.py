"""Models in Ray Serve: calls through them, and replicas that are killed."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from support import speech
from support.scale.replicas import kill_one_of, pids, until_replicas
from support.serving import Talk, run_command, serving

from rejoinder.models.ray.deploying import Scale, deploy, remove
from rejoinder.models.ray.recogniser import RayStt
from rejoinder.models.ray.turn_model import RayTurnModel
from rejoinder.models.ray.voice import RayVoice
from rejoinder.models.registry import create
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.errors import ModelError

pytestmark = [
    pytest.mark.scale,
    pytest.mark.weights,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's imports
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

STT, TURN, VOICE = "whisper:tiny.en", "smart-turn", "piper:en_US-joe-medium"
WIRE_RATE = 24_000
LONG = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen."


@pytest.fixture(scope="module", autouse=True)
def deployed(cluster: str) -> Iterator[None]:
    for spec in (STT, TURN, VOICE):
        speech.need(spec)
        deploy(spec, Scale(least=1 if spec == TURN else 2))
    yield
    for spec in (STT, TURN, VOICE):
        remove(spec)


async def until_idle(kind: str) -> None:
    """Wait until the replicas of a role use the processor for less than a tenth of a second in a second.

    Raises TimeoutError after 15 s.
    """
    replicas = [psutil.Process(pid) for pid in pids(kind)]
    async with asyncio.timeout(15):
        used = 1.0
        while used > 0.1:
            before = sum(sum(each.cpu_times()[:2]) for each in replicas)
            await asyncio.sleep(1.0)
            used = sum(sum(each.cpu_times()[:2]) for each in replicas) - before


def test_a_caller_is_answered_by_models_in_other_processes(tmp_path: Path) -> None:
    question = next(r for r in speech.recordings("assistant_utterances") if "whatstheweather" in r.path.stem)
    remote = {"vad": "silero", "stt": f"ray:{STT}", "turn": f"ray:{TURN}", "tts": f"ray:{VOICE}"}
    with serving(tmp_path, llm="scripted:llm|It is sunny.", **remote) as server, Talk(server) as talk:
        talk.append(to_pcm(question.load(WIRE_RATE)) + bytes(2 * 3 * WIRE_RATE))
        heard = talk.until("conversation.item.input_audio_transcription.completed")
        assert "weather like" in heard["transcript"]
        audio = 0
        while (event := talk.event())["type"] != "response.done":
            if event["type"] == "response.output_audio.delta":
                audio += len(base64.b64decode(event["delta"])) // 2
        assert event["response"]["status"] == "completed" and 0.5 < audio / WIRE_RATE < 4.0


def test_the_words_are_the_same_as_in_one_process() -> None:
    chosen = speech.recordings("librispeech_test_other", 3)
    here, there = speech.model(STT), RayStt(STT)

    async def compare() -> None:
        one, other = here.stream(), there.stream()
        for recording in chosen:
            pcm = to_pcm(recording.load(RATE))
            for first in range(0, len(pcm), 2 * RATE):
                chunk = AudioChunk(pcm[first : first + 2 * RATE], RATE, first // 2)
                one.feed(chunk)
                other.feed(chunk)
                await other.transcribe(is_final=False)
            expected, found = await one.transcribe(is_final=True), await other.transcribe(is_final=True)
            assert (found.text, found.end) == (expected.text, expected.end) and found.text
            one.reset()
            other.reset()

    with closing(here), closing(there):
        asyncio.run(compare())


def test_a_turn_goes_on_when_its_replica_is_killed() -> None:
    recording = speech.recordings("librispeech_test_other", 1)[0]
    stt = RayStt(STT)

    async def listen() -> None:
        whole, cut = stt.stream(), stt.stream()
        pcm = to_pcm(recording.load(RATE))
        for stream, victim in ((whole, False), (cut, True)):
            half = len(pcm) // 4 * 2
            stream.feed(AudioChunk(pcm[:half], RATE))
            await stream.transcribe(is_final=False)
            if victim:
                kill_one_of("stt")
            stream.feed(AudioChunk(pcm[half:], RATE, half // 2))
        expected, found = await whole.transcribe(is_final=True), await cut.transcribe(is_final=True)
        assert found.text == expected.text != ""
        await until_replicas("stt", 2)

    with closing(stt):
        asyncio.run(listen())


def test_a_clause_goes_on_when_its_replica_is_killed() -> None:
    voice = RayVoice(VOICE)

    async def listen() -> None:
        lengths = []
        for victim in (False, True):
            samples = 0
            async with aclosing(voice.speak(LONG)) as chunks:
                async for chunk in chunks:
                    assert chunk.start == samples, "nothing is left out or repeated"
                    samples = chunk.end
                    if victim:
                        kill_one_of("tts")
                        victim = False
            lengths.append(samples)
        assert lengths[1] == pytest.approx(lengths[0], rel=0.15)
        await until_replicas("tts", 2)

    with closing(voice):
        asyncio.run(listen())


def test_what_is_cancelled_ends_in_the_replica() -> None:
    voice, turn = RayVoice(VOICE), RayTurnModel(TURN)

    async def cancel() -> None:
        async with aclosing(voice.speak(" ".join([LONG] * 60))) as chunks:
            await anext(chunks)
        await until_idle("tts")  # to its end, the clause would take half a minute
        asking = asyncio.ensure_future(turn.probability(np.zeros(RATE, np.float32), ""))
        await asyncio.sleep(0.002)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert 0 <= await turn.probability(np.zeros(RATE, np.float32), "yes") <= 1

    with closing(voice), closing(turn):
        asyncio.run(cancel())


def test_what_is_not_deployed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="run rejoinder deploy whisper:base"):
        create("ray:whisper:base", speech.THREADS)
    with pytest.raises(
        ModelError, match=r"^ray: write ray:MODEL, such as ray:whisper:tiny.en, not 'silero'$"
    ):
        create("ray:silero", speech.THREADS)
    refused = run_command("deploy", "silero", folder=tmp_path)
    assert refused.returncode == 1 and "cannot be deployed" in refused.stderr
