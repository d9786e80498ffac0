"""G.711 on the Realtime wire: telephone audio is decoded, and positions in its output are right."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.callers.openai_client import REAL
from support.published import conforms
from support.serving import Talk, serving

from rejoinder.agent.bench.cases.recordings import RecordingsMissing, read_set, speech_folder
from rejoinder.agent.wires import g711
from rejoinder.agent.wires.commands import Hear, Truncate
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.pipeline import AudioChunk, Options, ReplyAudio, ReplyDone, ReplyStarted, ReplyText, to_pcm

LAWS: dict[str, g711.Law] = {"audio/pcmu": "mulaw", "audio/pcma": "alaw"}


def tone(rate: int, seconds: float) -> bytes:
    times = np.arange(int(rate * seconds)) / rate
    return to_pcm((0.3 * np.sin(2 * np.pi * 440 * times)).astype(np.float32))


def say(realtime: Realtime, type_: str, **fields: Any) -> list[Any]:
    answers = list(realtime.receive(json.dumps({"type": type_, **fields})))
    conforms(answers)
    return answers


def formats(given: str, sent: str) -> dict[str, Any]:
    return {"audio": {"input": {"format": {"type": given}}, "output": {"format": {"type": sent}}}}


def heard(realtime: Realtime, data: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    answers = say(realtime, "input_audio_buffer.append", audio=base64.b64encode(data).decode())
    pcm = b"".join(answer.pcm for answer in answers if isinstance(answer, Hear))
    return np.frombuffer(pcm, "<i2")


@pytest.mark.parametrize("kind", LAWS)
def test_telephone_audio_reaches_the_session_at_16_khz(kind: str) -> None:
    realtime = Realtime(Options())
    _, updated = say(realtime, "session.update", session=formats(kind, kind))
    assert updated["session"]["audio"]["input"]["format"] == {"type": kind}
    got = heard(realtime, g711.encode(tone(8_000, 0.5), LAWS[kind]) + b"\xff" * 81)
    wanted = np.frombuffer(tone(16_000, 0.5), "<i2")
    assert np.max(np.abs(got[200:7800].astype(int) - wanted[200:7800])) < 600, "2 % of full scale"


def test_changing_one_format_keeps_the_other() -> None:
    realtime = Realtime(Options())
    say(realtime, "session.update", session=formats("audio/pcmu", "audio/pcma"))
    back = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}}
    _, updated = say(realtime, "session.update", session=back)
    assert updated["session"]["audio"]["output"]["format"] == {"type": "audio/pcma"}
    assert len(heard(realtime, tone(24_000, 0.5))) == pytest.approx(8_000, abs=64)


@pytest.mark.parametrize("kind", LAWS)
def test_g711_output_has_8_bytes_per_millisecond(kind: str) -> None:
    realtime = Realtime(Options())
    say(realtime, "session.update", session=formats("audio/pcm", kind))
    realtime.handle(ReplyStarted(1))
    events = realtime.handle(ReplyText(1, "Hum"))
    item = events[0]["item"]["id"]
    for chunk in AudioChunk(tone(24_000, 1.0), 24_000).slices(960):
        events += realtime.handle(ReplyAudio(1, chunk))
    events += realtime.handle(ReplyDone(1, "completed", "Hum"))
    conforms(events)
    sent = b"".join(
        base64.b64decode(event["delta"]) for event in events if event["type"] == "response.output_audio.delta"
    )
    assert len(sent) == pytest.approx(8_000, abs=8)
    got = np.frombuffer(g711.decode(sent, LAWS[kind]), "<i2").astype(int)[400:7600]
    assert np.sqrt(np.mean(got**2.0)) == pytest.approx(0.3 * 32767 / np.sqrt(2), rel=0.03)
    (refused,) = say(realtime, "conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=1002)
    assert refused["error"]["param"] == "audio_end_ms"
    cut = say(realtime, "conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=500)
    assert cut[0] == Truncate(1, 0.5)


def test_recordings_have_a_maximum_length() -> None:
    realtime = Realtime(Options())
    say(realtime, "session.update", session=formats("audio/pcmu", "audio/pcmu"))
    for seconds, types in ((30, ["conversation.item.added", "AddRecording"]), (31, ["error"])):
        part = {"type": "input_audio", "audio": base64.b64encode(b"\xff" * 8_000 * seconds).decode()}
        item = {"type": "message", "role": "user", "content": [part]}
        answers = say(realtime, "conversation.item.create", item=item)
        told = [one["type"] if isinstance(one, dict) else type(one).__name__ for one in answers]
        assert told == types


def test_single_response_may_have_its_own_format() -> None:
    realtime = Realtime(Options())
    output = {"audio": {"output": {"format": {"type": "audio/pcma"}}}}
    say(realtime, "response.create", response=output)
    events = [*realtime.handle(ReplyStarted(1, tag=1)), *realtime.handle(ReplyText(1, "Hum"))]
    (audio,) = realtime.handle(ReplyAudio(1, AudioChunk(tone(8_000, 0.02), 8_000)))
    conforms([*events, audio])
    assert base64.b64decode(audio["delta"]) == g711.encode(tone(8_000, 0.02), "alaw")
    realtime.handle(ReplyDone(1, "completed", "Hum"))
    realtime.handle(ReplyStarted(2))
    realtime.handle(ReplyText(2, "Hum"))
    (audio,) = realtime.handle(ReplyAudio(2, AudioChunk(tone(24_000, 0.02), 24_000)))
    assert base64.b64decode(audio["delta"]) == tone(24_000, 0.02)


@pytest.mark.weights
def test_telephone_asks_and_hears_the_answer(tmp_path: Path) -> None:
    try:
        recordings = read_set(speech_folder(), "assistant_utterances")
    except RecordingsMissing as error:
        pytest.skip(str(error))
    question = next(one for one in recordings if one.path.stem == "azure_whatstheweatherlike")
    data = g711.encode(to_pcm(question.load(8_000)), "mulaw") + b"\xff" * 16_000
    with serving(tmp_path, llm="scripted:llm|It is sunny today in Rome.", **REAL) as server:
        with Talk(server) as talk:
            talk.send("session.update", session=formats("audio/pcmu", "audio/pcma"))
            for first in range(0, len(data), 800):
                talk.append(data[first : first + 800])
            said = talk.until("conversation.item.input_audio_transcription.completed")["transcript"]
            assert "weather" in said.lower()
            item = talk.until("response.done")["response"]["output"][0]["id"]
            deltas = [event for event in talk.seen if event["type"] == "response.output_audio.delta"]
            audio = b"".join(base64.b64decode(event["delta"]) for event in deltas)
            assert 8_000 < len(audio) < 40_000, "a second or more, at 8 bytes a millisecond"
            loud = np.frombuffer(g711.decode(audio, "alaw"), "<i2").astype(float)
            assert np.sqrt(np.mean(loud**2)) > 300
            talk.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=900)
            talk.until("conversation.item.truncated")
            talk.send("conversation.item.retrieve", item_id=item)
            kept = talk.until("conversation.item.retrieved")["item"]["content"][0]["transcript"]
            assert kept and "It is sunny today in Rome.".startswith(kept) and "Rome" not in kept
            conforms(talk.seen)
        server.wait_idle()
