"""Long messages on real sockets: too long ones are refused, and audio arrives in any fragments."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.serving import PATIENCE, Server, Talk, serving
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from rejoinder.agent.server.frames import PORTION_FRAMES
from rejoinder.agent.wires.long_messages import MAX_TEXT, MAX_WHOLE
from rejoinder.agent.wires.pcm.messages import MAX_AUDIO
from rejoinder.agent.wires.pcm.messages import MAX_REQUEST as MOST_TYPED
from rejoinder.agent.wires.phone.carrier import MAX_CARRIER_MESSAGE as MOST_CARRIED

MOST = 15 * 2**20 - 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), resume_s="0.5") as running:
        yield running


def loud(seconds: float) -> str:
    """Return a message of some seconds of noise, which is speech to the scripted VAD, and silence."""
    noise = np.random.default_rng(0).normal(0.0, 6000.0, int(seconds * 24_000)).astype("<i2")
    audio = base64.b64encode(noise.tobytes() + bytes(48_000 * 2)).decode()
    return json.dumps({"audio": audio, "type": "input_audio_buffer.append"})


def listed(size: int) -> str:
    prompt = f"[{','.join(['0'] * (size // 2 - 100))}]"
    return f'{{"type": "session.update", "event_id": "mine", "session": {{"prompt": {prompt}}}}}'


def send_frames(talk: Talk, *frames: Frame) -> None:
    """Write frames to a call's socket in one go."""
    talk.socket.socket.sendall(b"".join(frame.serialize(mask=True) for frame in frames))


def test_15_mib_of_a_list_are_refused_in_words_and_leave_no_memory(server: Server) -> None:
    with Talk(server) as talk:
        talk.socket.send(listed(MOST))
        talk.until("error")
        before = server.memory()
        for _ in range(3):
            text = listed(MOST)
            talk.socket.send(text)
            error = talk.until("error")["error"]
            assert (error["code"], error["event_id"]) == ("invalid_value", "mine")
            assert str(len(text)) in error["message"] and str(MAX_TEXT) in error["message"]
        assert server.memory() < before + 8 * 2**20
        talk.send("session.update", session={})
        talk.until("session.updated")


@pytest.mark.parametrize("size", [100, 4096, 2**20])
def test_long_audio_is_heard_in_fragments_of_any_size(server: Server, size: int) -> None:
    text = loud(4.0).encode()
    assert len(text) > MAX_WHOLE
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    with Talk(server) as talk:
        frames = [
            Frame(Opcode.CONT if at else Opcode.TEXT, piece, fin=at == len(pieces) - 1)
            for at, piece in enumerate(pieces)
        ]
        send_frames(talk, *frames)
        talk.until("input_audio_buffer.speech_stopped")


def test_long_audio_is_heard_where_it_was_compressed(server: Server) -> None:
    with Talk(server, compression="deflate") as talk:
        assert talk.socket.protocol.extensions, "it was agreed on"
        talk.socket.send(loud(6.0))
        talk.until("input_audio_buffer.speech_stopped")
        talk.socket.send(listed(MOST))
        assert str(MAX_TEXT) in talk.until("error")["error"]["message"]


def test_many_messages_at_once_are_all_answered_in_order(server: Server) -> None:
    with Talk(server) as talk:
        count = 20 * PORTION_FRAMES
        texts = [json.dumps({"type": "x", "event_id": f"event_{number}"}) for number in range(count)]
        send_frames(talk, *(Frame(Opcode.TEXT, text.encode()) for text in texts))
        found = [talk.until("error")["error"]["event_id"] for _ in range(count)]
        assert found == [f"event_{number}" for number in range(count)]
        talk.send("session.update", session={})
        talk.until("session.updated")


def test_a_close_behind_many_messages_is_answered(server: Server) -> None:
    with Talk(server) as talk:
        frames = [Frame(Opcode.TEXT, b"{}")] * (20 * PORTION_FRAMES)
        send_frames(talk, *frames, Frame(Opcode.CLOSE, b"\x03\xe8"))
        assert talk.read_to_end()[0] == 1000
    server.wait_idle()


def test_a_long_message_that_is_no_text_ends_the_call_in_words(server: Server) -> None:
    with Talk(server) as talk:
        send_frames(talk, Frame(Opcode.TEXT, json.dumps({"a": "é" * 10}).encode()[:-5] + b"\xff" * MAX_WHOLE))
        assert talk.until("error")["error"]["code"] == "invalid_value", "too long to be looked at"
        text = loud(4.0).encode()[:-1] + b',"a":"\xff"}'
        send_frames(talk, Frame(Opcode.TEXT, text))
        with pytest.raises(ConnectionClosed) as closed:
            talk.until("never")
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1007


def test_long_messages_of_a_device_are_reported(server: Server) -> None:
    with connect(f"ws://127.0.0.1:{server.port}/v1/pcm", proxy=None, ping_interval=None) as socket:
        assert json.loads(socket.recv(timeout=PATIENCE))["type"] == "ready"
        for sent, most in ((bytes(MOST), MAX_AUDIO), ("é" * (MOST // 2), MOST_TYPED)):
            socket.send(sent)
            error: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE))
            assert (
                error["type"] == "error" and str(MOST) in error["message"] and str(most) in error["message"]
            )


@pytest.mark.parametrize("started", [False, True])
def test_long_messages_on_a_telephone_wire_end_the_call_with_a_reason(server: Server, started: bool) -> None:
    start = {"streamSid": "MZ1", "callSid": "CA1", "mediaFormat": {"encoding": "audio/x-mulaw"}}
    with connect(f"ws://127.0.0.1:{server.port}/v1/phone", proxy=None, ping_interval=None) as socket:
        if started:
            socket.send(json.dumps({"event": "start", "start": start}))
        socket.send(listed(MOST))
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.recv(timeout=PATIENCE)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert str(MOST_CARRIED) in closed.value.rcvd.reason
