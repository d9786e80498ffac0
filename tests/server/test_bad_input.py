"""Invalid client input on real sockets: each case gets an error message and affects no other call.

One healthy caller stays on the line during each of them and holds a whole turn afterwards.
"""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.serving import LINE, PATIENCE, Server, Talk, run_command, serving
from websockets.exceptions import ConnectionClosed

LONG = f"scripted:llm|{LINE * 40}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=LONG, resume_s="0.5") as running:
        yield running


@pytest.fixture
def neighbour(server: Server) -> Iterator[Talk]:
    """Another caller, whose turn completes whatever the test did; afterwards nothing is left behind."""
    with Talk(server) as talk:
        yield talk
        talk.speak()
        talk.until("response.output_audio.delta")
        talk.send("response.cancel")
        assert talk.until("response.done")["response"]["status"] == "cancelled"
        assert [event for event in talk.seen if event["type"] == "error"] == []
    server.wait_idle()


BAD_MESSAGES = {
    "not JSON": ("{", "invalid_json"),
    "not an object": ("[1, 2]", "invalid_value"),
    "a number": ("7", "invalid_value"),
    "no type": ('{"audio": ""}', "missing_required_parameter"),
    "unknown event": ('{"type": "nonsense", "event_id": "mine"}', "unknown_event"),
    "type of a wrong type": ('{"type": 5}', "unknown_event"),
    "missing field": (
        '{"type": "input_audio_buffer.append", "event_id": "mine"}',
        "missing_required_parameter",
    ),
    "wrong type": ('{"type": "input_audio_buffer.append", "audio": 5, "event_id": "mine"}', "invalid_value"),
    "odd bytes": (
        '{"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "mine"}',
        "invalid_value",
    ),
    "no base64": (
        '{"type": "input_audio_buffer.append", "audio": "!!", "event_id": "mine"}',
        "invalid_value",
    ),
    "lone surrogate": ('{"type": "\\ud800"}', None),
    "nested": ("[" * 100_000, "invalid_json"),
    "commit of nothing": ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty"),
    "unknown item": (
        '{"type": "conversation.item.retrieve", "item_id": "no"}',
        "item_retrieve_invalid_item_id",
    ),
    "truncate nothing": (
        '{"type": "conversation.item.truncate", "item_id": "no", "audio_end_ms": 0}',
        "item_truncate_invalid_item_id",
    ),
    "bad session": ('{"type": "session.update", "session": {"audio": 5}}', "invalid_value"),
    "bad detection": (
        '{"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "x"}}}}}',
        "invalid_value",
    ),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_bad_messages_are_answered_with_an_error_and_the_call_goes_on(
    server: Server, neighbour: Talk, name: str
) -> None:
    message, code = BAD_MESSAGES[name]
    with Talk(server) as talk:
        talk.socket.send(message)
        event = talk.event()
        assert event["type"] == "error"
        error = event["error"]
        assert set(error) == {"type", "code", "message", "param", "event_id"}
        assert error["type"] == "invalid_request_error" and error["message"]
        if code:
            assert error["code"] == code
        if '"mine"' in message:
            assert error["event_id"] == "mine"
        talk.send("response.create")
        talk.until("response.output_audio.delta")


def test_binary_frame_is_answered_with_an_error(server: Server, neighbour: Talk) -> None:
    with Talk(server) as talk:
        talk.socket.send(b"\x00\x01")
        assert talk.event()["error"]["code"] == "invalid_json"


def test_message_of_16_mib_closes_the_call(server: Server, neighbour: Talk) -> None:
    with Talk(server) as talk:
        with pytest.raises(ConnectionClosed):
            talk.socket.send("x" * 2**24)
            talk.until("never")
        assert talk.socket.close_code == 1009


def test_large_append_is_processed(server: Server, neighbour: Talk) -> None:
    with Talk(server) as talk:
        talk.append(bytes(10 * 2**20 * 3 // 4 // 2 * 2))
        talk.speak()
        talk.until("input_audio_buffer.speech_started", timeout=3 * PATIENCE)


def test_audio_faster_than_real_time_and_an_hour_of_silence(server: Server, neighbour: Talk) -> None:
    with Talk(server, compression=None, max_queue=None) as talk:  # it reads while it sends
        talk.append(bytes(48_000 * 60))  # a minute, so that what grows once has grown
        talk.speak()
        talk.until("input_audio_buffer.speech_started", timeout=3 * PATIENCE)
        talk.send("response.cancel")
        before = server.memory()
        for _ in range(59):
            talk.append(bytes(48_000 * 60))
        talk.speak()
        talk.until("input_audio_buffer.speech_started", timeout=6 * PATIENCE)
        # The allocator keeps what big messages needed for a while, a tenth of a gigabyte; it is no backlog.
        deadline = time.monotonic() + PATIENCE
        while server.memory() >= before + 40 * 2**20:
            assert time.monotonic() < deadline, "an hour of audio left memory behind"
            talk.append(bytes(960))
            time.sleep(0.1)


def test_audio_while_a_reply_plays_interrupts_it(server: Server, neighbour: Talk) -> None:
    with Talk(server) as talk:
        talk.speak()
        talk.until("response.output_audio.delta")
        talk.speak()
        talk.until("input_audio_buffer.speech_started")
        done = talk.until("response.done")["response"]
        assert done["status"] == "cancelled"
        heard = done["output"][0]["content"][0]["transcript"]
        late = []
        while (event := talk.event())["type"] != "response.created":
            late.append(event)
        assert not [event for event in late if event["type"] == "response.output_audio.delta"]
        talk.send("conversation.item.truncate", item_id=done["output"][0]["id"], audio_end_ms=100)
        talk.until("conversation.item.truncated")
        talk.send("conversation.item.retrieve", item_id=done["output"][0]["id"])
        kept = talk.until("conversation.item.retrieved")["item"]["content"][0]["transcript"]
        assert len(kept) < len(heard) or not heard


def test_client_that_stops_reading_is_hung_up_on(server: Server, neighbour: Talk) -> None:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", server.port))
    talk = Talk(server, greeted=False, sock=raw, max_queue=1, compression=None)
    before = server.memory()
    talk.speak()
    deadline = time.monotonic() + 3 * PATIENCE
    while server.sessions() > 1:
        assert time.monotonic() < deadline, "the server kept a client that does not read"
        time.sleep(0.1)
    assert server.memory() < before + 20 * 2**20
    raw.close()


def test_client_that_vanishes_leaves_nothing(server: Server, neighbour: Talk) -> None:
    process = psutil.Process(server.process.pid)
    for attempt in range(6):
        talk = Talk(server)
        talk.speak()
        talk.until("response.output_audio.delta")
        talk.cut()
        deadline = time.monotonic() + PATIENCE
        while server.sessions() > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if not attempt:
            files, threads = process.num_fds(), process.num_threads()
    deadline = time.monotonic() + PATIENCE
    while process.num_fds() > files:  # a socket may linger for a moment after its session
        assert time.monotonic() < deadline, "a socket stayed behind"
        time.sleep(0.1)
    assert process.num_threads() <= threads


def test_two_commits_in_a_row(server: Server, neighbour: Talk) -> None:
    with Talk(server) as talk:
        talk.send("session.update", session={"audio": {"input": {"turn_detection": None}}})
        talk.until("session.updated")
        talk.append(b"\x10\x27" * 24_000)
        talk.send("input_audio_buffer.commit")
        talk.send("input_audio_buffer.commit", event_id="second")
        error = talk.until("error")["error"]
        assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "second")
        talk.until("conversation.item.input_audio_transcription.completed")
        talk.send("response.create")
        talk.send("response.create", event_id="again")
        error = talk.until("error")["error"]
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "again")
        talk.until("response.output_audio.delta")


@pytest.mark.parametrize("query", ["hold=perhaps", "trace=1"])
def test_invalid_url_parameter_gets_an_error(server: Server, query: str) -> None:
    with server.call(f"&{query}&foo=bar") as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=PATIENCE)
    reason = f"{query}: it is true or false"
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
    assert closed.value.rcvd.reason == reason
    assert f"a call to /v1/realtime was refused: {reason}" in server.log.read_text()
    with Talk(server, query="&foo=bar&hold=true&trace=false"):  # others may mean something elsewhere
        pass


def test_more_calls_than_lines(tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="1") as server:
        with Talk(server) as first:
            with Talk(server, greeted=False) as second, pytest.raises(ConnectionClosed):
                second.event()
            assert second.socket.close_code == 1013 and "busy" in (second.socket.close_reason or "")
            assert first.turn()["status"] == "completed"
        server.wait_idle()


def test_sigterm_ends_a_reply_with_a_close_code(tmp_path: Path) -> None:
    with serving(tmp_path, llm=LONG) as server:
        talk = Talk(server)
        talk.speak()
        talk.until("response.output_audio.delta")
        server.process.terminate()
        assert talk.read_to_end()[0] in (1001, 1012)


def test_command_line_reports_a_used_port_and_bad_values(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = run_command("serve", "--port", port, folder=tmp_path)
    assert result.returncode == 1 and f"127.0.0.1:{port}" in result.stderr and "--port 0" in result.stderr
    result = run_command("serve", folder=tmp_path, REJOINDER_PORT="many")
    assert result.returncode == 2 and "REJOINDER_PORT" in result.stderr and "many" in result.stderr
    (tmp_path / "rejoinder.toml").write_text('voice = "x"\n')
    result = run_command("serve", folder=tmp_path)
    assert result.returncode == 2 and "'voice'" in result.stderr and "rejoinder.toml" in result.stderr
    assert "Traceback" not in result.stderr


def test_model_that_cannot_be_loaded_ends_the_server_with_a_reason(tmp_path: Path) -> None:
    result = run_command(
        "serve", "--port", "0", "--tts", "piper:./no.onnx", folder=tmp_path, REJOINDER_VAD="scripted:vad"
    )
    assert result.returncode == 1 and "no.onnx" in result.stderr and "Traceback" not in result.stderr


def test_configuration_names_its_sources(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text('tts = "hibari"\nport = 1\n')
    result = run_command("serve", "--print-config", "--port", "2", folder=tmp_path, REJOINDER_HOST="::1")
    rows = {line.split("│")[1].strip(): line for line in result.stdout.splitlines() if "│" in line}
    assert "hibari" in rows["tts"] and "rejoinder.toml" in rows["tts"]
    assert "flag" in rows["port"] and "REJOINDER_HOST" in rows["host"] and "default" in rows["stt"]


def test_events_are_json_on_the_wire(server: Server, neighbour: Talk) -> None:
    with Talk(server) as talk:
        created = talk.seen[0]
        assert created["session"]["audio"]["input"]["turn_detection"]["interrupt_response"] is True
        assert json.loads(json.dumps(created)) == created
