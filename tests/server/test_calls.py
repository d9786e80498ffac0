"""How calls end on real sockets: the client gets the reason, and no socket, thread or task is left."""

import asyncio
import base64
import json
import os
import socket
import struct
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn
from support.servers.in_process import LONG, served_here, until
from support.serving import LINE, PATIENCE, THREE_LINES, Server, Talk, run_command, serving
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.typing import Origin

from rejoinder.agent.server import requests
from rejoinder.agent.server.access import may_call
from rejoinder.agent.server.serving import listen
from rejoinder.pipeline import LoadShedder

SECOND = bytes(48_000)
TYPED = [{"type": "input_text", "text": "Are you there?"}]
HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), llm=LONG, resume_s="0.5") as running:
        yield running


class Raw:
    """A WebSocket client that reads only on request. The clients of libraries read all the time."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.settimeout(PATIENCE)
        self.socket.sendall(HANDSHAKE)
        self.received = b""
        while b"session.created" not in self.received:
            self.received += self.socket.recv(4096)

    def send(self, type_: str, **fields: Any) -> None:
        self.frame(Opcode.TEXT, json.dumps({"type": type_, **fields}).encode())

    def frame(self, opcode: Opcode, data: bytes) -> None:
        self.socket.sendall(Frame(opcode, data).serialize(mask=True))

    def rest(self) -> bytes:
        """Read what there is until the server ends or drops the connection."""
        rest = bytearray()
        try:
            while data := self.socket.recv(65536):
                rest += data
        except ConnectionResetError:
            pass
        return bytes(rest)


def close_frame(code: int, reason: str) -> bytes:
    return struct.pack("!H", code) + reason.encode()


@contextmanager
def unharmed(server: Server) -> Iterator[psutil.Process]:
    """Keep a neighbour on the line, whose turn works afterwards; then nothing is left of the block."""
    process = psutil.Process(server.process.pid)
    with Talk(server) as warm:  # so that what is opened once is open
        warm.speak()
        warm.until("response.output_audio.delta")
    server.wait_idle()
    files, threads = until_steady(process)
    with Talk(server) as neighbour:
        yield process
        neighbour.speak()
        neighbour.until("response.output_audio.delta")
        neighbour.send("response.cancel")
        assert neighbour.until("response.done")["response"]["status"] == "cancelled"
        assert not [event for event in neighbour.seen if event["type"] == "error"]
    server.wait_idle()
    deadline = time.monotonic() + PATIENCE
    while process.num_fds() > files or process.num_threads() > threads:
        assert time.monotonic() < deadline, f"left behind: {process.net_connections()}"
        time.sleep(0.1)


def until_steady(process: psutil.Process) -> tuple[int, int]:
    """Return the open files and threads once no connection is being closed any more."""
    deadline = time.monotonic() + PATIENCE
    while len(process.net_connections()) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process.num_fds(), process.num_threads()


def test_client_that_stops_reading_is_dropped_with_its_socket(server: Server) -> None:
    with unharmed(server) as process:
        client = Raw(server)
        port = client.socket.getsockname()[1]
        before = server.memory()
        client.send("response.create")
        deadline = time.monotonic() + 2 * PATIENCE
        while port in {c.raddr.port for c in process.net_connections() if c.raddr}:
            assert time.monotonic() < deadline, "the server kept a client that does not read"
            time.sleep(0.1)
        server.wait_idle(1)
        assert server.memory() < before + 20 * 2**20
        taken = (client.received + client.rest()).count(b"response.output_audio.delta") * 0.04
        # Left alone, the kernel takes more than a minute of audio before it reports the loss.
        assert taken < 30.0, f"{taken:.0f} s of audio went into buffers"
        client.socket.close()


@pytest.mark.realtime
def test_silence_is_read_in_bursts(server: Server) -> None:
    process = psutil.Process(server.process.pid)
    with Talk(server) as talk:
        time.sleep(1.0)
        before, came = process.num_ctx_switches().voluntary, time.monotonic()
        for frame in range(150):
            talk.append(bytes(960))
            time.sleep(max(0.0, came + 0.02 * (frame + 1) - time.monotonic()))
        switches = process.num_ctx_switches().voluntary - before
        assert switches < 40 * (time.monotonic() - came)  # 10 a second without any call
        talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": TYPED})
        talk.send("response.create")
        talk.until("response.output_audio.delta")
        talk.send("response.cancel")
        talk.until("response.done")
        talk.speak()
        talk.until("response.output_audio.delta")
    server.wait_idle()


@pytest.mark.parametrize("attempt", range(3))
def test_too_big_message_is_refused_with_a_reason(server: Server, attempt: int) -> None:
    with unharmed(server):
        client = Raw(server)
        try:
            client.frame(Opcode.TEXT, b" " * 2**24)
        except ConnectionError as error:
            pytest.fail(f"the server did not let the client finish: {error}")
        said = client.rest()
        assert struct.pack("!H", 1009) in said and b"exceeds limit" in said
        client.socket.close()


def test_invalid_utf8_is_refused_with_a_reason(server: Server) -> None:
    with unharmed(server):
        client = Raw(server)
        client.frame(Opcode.TEXT, b'{"type": "\xff"}')
        assert close_frame(1007, "not UTF-8: invalid start byte") in client.rest()
        client.socket.close()


def test_frame_against_the_rules_is_refused(server: Server) -> None:
    with unharmed(server):
        client = Raw(server)
        client.socket.sendall(b"\xff\xff\xff\xff")
        assert struct.pack("!H", 1002) in client.rest()
        client.socket.close()


def test_clients_that_vanish_in_mid_reply(server: Server) -> None:
    with unharmed(server):
        clients = [Raw(server) for _ in range(5)]
        for client in clients:
            client.send("response.create")
            while b"output_audio.delta" not in client.received:
                client.received += client.socket.recv(65536)
        for client in clients:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.socket.close()
        deadline = time.monotonic() + PATIENCE
        while server.sessions() > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_cancel_right_after_its_response_is_not_lost(server: Server) -> None:
    with unharmed(server), Talk(server) as talk:
        talk.send("response.create", response={"metadata": {"mine": "yes"}})
        talk.send("response.cancel")
        done = talk.until("response.done")["response"]
        assert (done["status"], done["metadata"]) == ("cancelled", {"mine": "yes"})
        assert done["status_details"]["reason"] == "client_cancelled"


def test_committed_silence_becomes_an_empty_item(server: Server) -> None:
    with unharmed(server), Talk(server) as talk:
        for _ in range(2):
            talk.append(SECOND)
            talk.send("input_audio_buffer.commit")
            talk.until("input_audio_buffer.committed")
            heard = talk.until("conversation.item.input_audio_transcription.completed")
            assert heard["transcript"] == ""
        assert not [event for event in talk.seen if event["type"].startswith("input_audio_buffer.speech")]
        talk.speak()
        talk.until("response.output_audio.delta")


def test_history_is_what_the_client_played(tmp_path: Path) -> None:
    with serving(tmp_path, llm="scripted:llm") as echo, Talk(echo) as talk:  # it repeats what was said last
        talk.send("response.create", response={"instructions": "One two three four five six seven eight."})
        talk.until("response.output_audio.delta")
        talk.send("response.cancel")
        item = talk.until("response.done")["response"]["output"][0]["id"]
        talk.send("conversation.item.truncate", item_id=item, audio_end_ms=20)
        talk.until("conversation.item.truncated")
        talk.send("conversation.item.retrieve", item_id=item)
        kept = talk.until("conversation.item.retrieved")["item"]
        assert (kept["status"], kept["content"][0]["transcript"]) == ("incomplete", "")
        words = {"type": "input_text", "text": "Only this."}
        talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": [words]})
        talk.until("conversation.item.done")
        talk.send("response.create")
        answer = talk.until("response.done")["response"]["output"][0]["content"][0]["transcript"]
        assert answer == "You said: Only this."


def test_refused_call_does_not_end_a_conversation_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines are full, one client may come back, and the server is too busy for another caller."""

    async def hold() -> str:
        async with served_here(max_sessions=1, resume_s=30.0) as (program, port):
            url = f"ws://127.0.0.1:{port}/v1/realtime"
            async with connect(url, proxy=None) as client:
                await client.send(json.dumps({"type": "response.create"}))
                while "output_audio.delta" not in str(await client.recv()):
                    pass
                client.transport.abort()
            (call,) = program.calls
            await until(lambda: any(one.socket.waits for one in program.conversations._tasks.values()))
            assert program.models is not None
            monkeypatch.setattr(LoadShedder, "refuse", lambda shedder, now: "too busy")
            async with connect(url, proxy=None, origin=Origin(f"http://127.0.0.1:{port}")) as page:
                with pytest.raises(ConnectionClosed) as closed:
                    await page.recv()
            assert program.calls == {call}, "the call that waits is still there"
            return str(closed.value.rcvd and closed.value.rcvd.reason)

    assert asyncio.run(hold()) == "too busy"


def test_clients_mistakes_leave_no_task_behind() -> None:
    async def hold() -> None:
        async with served_here() as (program, port):
            before = asyncio.all_tasks()
            for fault in ("", "{", b"\x00", '{"type": "input_audio_buffer.append", "audio": "!"}'):
                url = f"ws://127.0.0.1:{port}/v1/realtime"
                async with asyncio.timeout(PATIENCE), connect(url, proxy=None, compression=None) as client:
                    await client.send(json.dumps({"type": "response.create"}))
                    while "output_audio.delta" not in str(await client.recv()):
                        pass
                    await client.send(fault)
                    while '"error"' not in str(await client.recv()):
                        pass
                    client.transport.abort()
            await until(lambda: not program.calls and not asyncio.all_tasks() - before)

    asyncio.run(hold())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 3 + b"POST /v1/chat/completions HTTP/1.1\r\nHost: ",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n",
        b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n",
    ],
)
def test_slow_requests_are_dropped(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.5)

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        for _ in range(90):
            await asyncio.sleep(0.1)
            writer.write(b"x")

    async def stall() -> None:
        async with served_here(handshake_s=0.5) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            trickling = asyncio.create_task(trickle(writer))
            async with asyncio.timeout(PATIENCE):
                with suppress(ConnectionError):
                    await reader.read()
            trickling.cancel()
            writer.close()

    asyncio.run(stall())


def test_answer_may_take_longer_than_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    # The request itself is sent at once. Its answer has 100 tokens, one each 20 ms.
    monkeypatch.setattr(requests, "BODY_SECONDS", 1.5)
    body = json.dumps(
        {
            "model": "default",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": True,
            "max_tokens": 100,
        }
    )

    async def wait() -> None:
        async with served_here(handshake_s=1.5) as (program, port):
            async with connect(f"ws://127.0.0.1:{port}/v1/realtime", proxy=None) as client:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
                for _ in range(2):
                    head = f"Host: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
                    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{head}{body}".encode())
                    assert b"[DONE]" in await reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n")
                writer.close()
                await client.send(json.dumps({"type": "response.create"}))
                while "output_audio.delta" not in str(await client.recv()):
                    pass
                assert len(program.calls) == 1, "nor is a call"

    asyncio.run(wait())


def test_late_pong_ends_no_call() -> None:
    """A pong waits behind audio that is not taken yet, for as long as that takes."""

    def hasten(config: uvicorn.Config) -> None:
        config.ws_ping_interval = (config.ws_ping_interval or 0.0) / 100
        config.ws_ping_timeout = config.ws_ping_timeout and config.ws_ping_timeout / 100

    async def hold() -> None:
        async with served_here(hasten) as (program, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HANDSHAKE)
            await asyncio.sleep(1.5)  # a hundred times as fast, these are minutes
            assert len(program.calls) == 1
            said = b""
            async with asyncio.timeout(PATIENCE):  # pings keep proxies from giving up
                while said.count(b"\x89\x04") <= 3:
                    said += (more := await reader.read(2**20))
                    assert more, "the call has ended"
            writer.close()
            await until(lambda: not program.calls)

    asyncio.run(hold())


def test_call_while_models_load_is_closed_with_try_again(tmp_path: Path) -> None:
    with socket.socket() as silent:  # a chat server that takes connections and answers nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        llm = f"openai:http://127.0.0.1:{silent.getsockname()[1]}/v1#m"
        with serving(tmp_path, wait=False, llm=llm) as server:
            deadline = time.monotonic() + PATIENCE
            while not answers(server):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with Talk(server, greeted=False) as talk, pytest.raises(ConnectionClosed):
                talk.event()
            assert talk.socket.close_code == 1013 and "loading" in (talk.socket.close_reason or "")


def answers(server: Server) -> bool:
    try:
        return bool(server.get("/healthz")["status"] == "ok")
    except OSError:
        return False


def test_sigterm_sends_a_close_to_a_client_that_is_sending(tmp_path: Path) -> None:
    with serving(tmp_path, llm=LONG) as server:
        stuck, speaking = Raw(server), Raw(server)
        for client in (stuck, speaking):
            client.send("response.create")
            while b"output_audio.delta" not in client.received:
                client.received += client.socket.recv(65536)
        audio = base64.b64encode(20 * SECOND).decode()
        for _ in range(10):
            speaking.send("input_audio_buffer.append", audio=audio)
        server.process.terminate()
        said = speaking.rest()
        assert close_frame(1012, "the server is shutting down") in said
        assert server.process.wait(timeout=PATIENCE) == 0
        stuck.socket.close()
        speaking.socket.close()


def test_other_addresses_are_no_calls(server: Server) -> None:
    for path in ("/nowhere", "/v1/other", "/page/nothing.js"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            server.get(path)
        assert refusal.value.code == 404
        refusal.value.close()

    async def call() -> None:
        async with connect(f"ws://127.0.0.1:{server.port}/v1/other", proxy=None):
            pass

    with pytest.raises(InvalidStatus) as status:
        asyncio.run(call())
    assert status.value.response.status_code in (403, 404)


@pytest.mark.parametrize(
    ("origin", "host", "local", "welcome"),
    [
        ("http://evil.example:8080", "evil.example:8080", True, False),  # a name that was made to lead here
        ("http://127.evil.example:8080", "127.evil.example:8080", True, False),
        ("http://agent.example", "agent.example", False, True),
        ("http://localhost:8080", "localhost:8080", True, True),
        ("http://[::1]:8080", "[::1]:8080", True, True),
    ],
)
def test_on_loopback_only_pages_of_this_machine_call(
    origin: str, host: str, local: bool, welcome: bool
) -> None:
    assert may_call(origin, host, [], local) == welcome


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_trace_that_cannot_be_written_ends_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_TRACE_FILE", "/dev/full")
    with serving(tmp_path) as server, Talk(server) as talk:
        assert talk.turn()["status"] == "completed"
    assert "cannot write the traces file /dev/full" in server.log.read_text()


def test_each_turn_is_a_line_of_the_trace_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which call it was of, when by the clock on the wall, and what was said and heard.

    Of a reply that is cut by the end of the call, too.
    """
    file, spoken = tmp_path / "traces.jsonl", "what is the weather"
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(file))
    before = datetime.now(UTC)
    with serving(tmp_path, llm=THREE_LINES) as server, Talk(server) as talk:
        call = talk.seen[0]["session"]["id"]
        talk.turn()
        typed = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Tippfehler ß"}],
        }
        talk.send("conversation.item.create", item=typed)
        talk.send("response.create")
        talk.until("response.output_audio.delta")
        talk.send("response.cancel")
        talk.until("response.done")
        talk.speak()
        talk.until("response.output_audio.delta")
    whole, cut, left = map(json.loads, file.read_text().splitlines())
    assert [line["turn"] for line in (whole, cut, left)] == [1, 2, 3]
    assert {line["call"] for line in (whole, cut, left)} == {call}
    assert (whole["said"], cut["said"], left["said"]) == (spoken, "Tippfehler ß", spoken)
    assert [line["status"] for line in (whole, cut, left)] == ["completed", "cancelled", "cancelled"]
    assert whole["heard"] == (LINE * 3).strip() and len(cut["heard"]) < len(whole["heard"])
    began = [datetime.fromisoformat(line["at"]) for line in (whole, cut, left)]
    assert all(line["at"].endswith("Z") for line in (whole, cut, left)), "it is UTC"
    times = [before, *began, datetime.now(UTC)]
    assert times == sorted(times)
    assert whole["marks"]["audio_sent"] > 0 and whole["budget"]


def test_trace_file_that_cannot_be_opened_is_named_at_the_start(tmp_path: Path) -> None:
    said = run_command("serve", "--port", "0", "--trace-file", str(tmp_path), folder=tmp_path)
    assert said.returncode == 1
    assert f"trace_file {tmp_path}: Is a directory" in " ".join(said.stderr.split())


@pytest.mark.parametrize(
    ("origin", "allowed", "welcome"),
    [
        (None, "", True),
        ("http://127.0.0.1:{port}", "", True),
        ("https://evil.example", "", False),
        ("null", "", False),
        ("http://127.0.0.1:1", "", False),
        ("https://good.example", "https://other.example https://good.example", True),
        ("https://evil.example", "https://good.example", False),
        ("null", "*", True),
        ("http://[half", "", False),
    ],
)
def test_foreign_pages_may_not_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None, allowed: str, welcome: bool
) -> None:
    monkeypatch.setenv("REJOINDER_ALLOWED_ORIGINS", allowed)
    with serving(tmp_path) as server:
        given = {"origin": origin.format(port=server.port)} if origin else {}
        if welcome:
            Talk(server, **given).socket.close()
        else:
            with pytest.raises(InvalidStatus) as refusal:
                Talk(server, **given)
            assert refusal.value.response.status_code == 403
            assert b"may not call" in (refusal.value.response.body or b"")


def test_settings_that_contradict_each_other_name_their_sources(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text("max_wait_ms = 400\n")
    result = run_command("serve", folder=tmp_path, REJOINDER_MIN_WAIT_MS="500")
    said = " ".join(result.stderr.split())
    assert result.returncode == 2
    assert "REJOINDER_MIN_WAIT_MS is 500, which is more than 400, the value of rejoinder.toml: max_w" in said


@pytest.mark.parametrize("text", [b"port = ", b"\xff\xfe"])
def test_file_that_is_no_configuration(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "rejoinder.toml").write_bytes(text)
    result = run_command("serve", folder=tmp_path)
    assert result.returncode == 2 and result.stderr.startswith("error: rejoinder.toml")
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "rejoinder.toml").write_text("port = 1\n")
    (tmp_path / "rejoinder.toml").chmod(0)
    result = run_command("serve", folder=tmp_path)
    assert result.returncode == 2 and "Traceback" not in result.stderr


def test_event_does_not_wait_for_the_callers_next_frame() -> None:
    """Nagle's algorithm holds back a small packet until the one before it is acknowledged, with a frame."""

    async def scenario() -> int:
        option = asyncio.get_running_loop().create_future()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            option.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as sock:
            async with await asyncio.start_server(accepted, sock=sock):
                _, writer = await asyncio.open_connection(*sock.getsockname())
                found: int = await option
                writer.close()
                await writer.wait_closed()
        return found

    assert asyncio.run(scenario())
