"""The log has no key, secret or token, and one line for the beginning and the end of each call."""

from __future__ import annotations

import io
import json
import logging
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.callers.carriers import ExotelSim, TwilioSim
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import BLOCKED, PATIENCE, Server, Talk, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rejoinder.agent.config import Settings
from rejoinder.agent.logs import HIDDEN, LONGEST_LOGGED, PATTERNS, SafeRecord, safe, secrets_of
from rejoinder.agent.server.keys import PROTOCOL, hashed
from rejoinder.agent.wires.audiosocket.protocol import UUID, packet

KEY = "rj_the-key_of-these~tests"
LLM_KEY = "a/key+of the=language model"
AUDIO = packet(0x10, bytes(320))
SHOWN = {"Authorization": f"Bearer {KEY}"}


def minted(server: Server) -> str:
    wanted = urllib.request.Request(f"{server.http}/v1/realtime/client_secrets", b"{}", SHOWN)
    with urllib.request.urlopen(wanted, timeout=PATIENCE) as answer:
        return str(json.load(answer)["value"])


def says_yes(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
    handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")


def created(talk: Talk) -> str:
    made = next(event for event in talk.seen if event["type"] == "conversation.created")
    return str(made["conversation"]["id"])


@pytest.mark.parametrize("level", ["debug", "info"])
def test_no_secret_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Calls with a key, with a secret and over a second socket; the model behind HTTP wants a key, too."""
    port = unused_port()
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    monkeypatch.setenv("REJOINDER_LLM_KEY", LLM_KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-of_another-one")
    monkeypatch.setenv("REJOINDER_LOG_LEVEL", level)
    monkeypatch.setenv("REJOINDER_LOG_WORDS", "true")
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, says_yes), serving(tmp_path, llm=llm) as server:
        with Talk(server, additional_headers=SHOWN) as talk:
            conversation = created(talk)
            assert talk.turn()["status"] == "completed"
            talk.cut()
        query = f"&conversation_id={conversation}"
        with Talk(server, query=query, additional_headers=SHOWN, max_queue=None) as back:
            assert created(back) == conversation
        secret = minted(server)
        with Talk(server, subprotocols=["realtime", f"{PROTOCOL}{secret}"]) as talk:
            assert talk.turn()["status"] == "completed"
            other = created(talk)
        server.wait_idle()
    log = server.log.read_text()
    for hidden in (KEY, LLM_KEY, "sk-proj", secret, conversation, other):
        assert hidden[3:] not in log, [line for line in log.splitlines() if hidden[3:] in line]
    # What a library cuts out of the middle of a long message may leave a secret's end.
    assert not re.search(rf"{conversation[-12:]}|{secret[-12:]}|{other[-12:]}", log)
    if level == "debug":
        for library in ("uvicorn.error", "openai._base_client", "asyncio"):
            assert f" {library} DEBUG " in log, "there is something to hide things in"
        assert "authorization" in log and "conversation_id=" in log and PROTOCOL in log


@pytest.mark.parametrize(
    "text",
    [
        "< authorization: Bearer short",
        "> Authorization: Basic dTpw",
        "{'Authorization': 'Bearer short', 'Host': 'x'}",
        '{"authorization": "Bearer short", "host": "x"}',
        r"body {\"authorization\": \"Bearer short\", \"host\": \"x\"}",
        "[(b'Host', b'x'), (b'Authorization', b'Bearer short'), (b'a', b'b')]",
        r"b'GET / HTTP/1.1\r\nAuthorization: Bearer short\r\n\r\n'",
        "'Proxy-Authorization': 'Digest response=\"short\"'",
        r"'authorization': 'it\'s short'",
        "x-twilio-signature: short=",
        "{'X-Api-Key': 'short'}",
        "Cookie: session=short",
        "a bearer short-but-not-so-short",
        "< sec-websocket-protocol: realtime, openai-insecure-api-key.short, x",
        "['realtime', 'openai-insecure-api-key.short']",
        "GET /v1/realtime?model=x&conversation_id=short&last_event_id=event_1 HTTP/1.1",
        "b'conversation_id=short&x=1'",
        "https://u@h/p?api_key=short#there",
        "http://h/?token=short",
        "http://h/?a=1&key=short",
        "https://h/o?X-Amz-Signature=short&x=1",
        "the key rj_short-but-long was",
        r"'one\nrj_short-but-long'",
        "%22sk-short-but-long%22",
        "Incorrect API key provided: sk-proj-short.",
        '{"value": "ek_short-but-long"}',
        "no conversation conv_short_but_long to go on with",
        """< TEXT '{"type": "conversation.created", "id": ...short-but-long"}' [206 bytes]""",
        "s3cret/of=short+the settings",
        "http://h/?x=s3cret%2Fof%3Dshort%2Bthe%20settings",
    ],
)
def test_secrets_are_hidden_in_log_lines(text: str) -> None:
    written = safe(text, secrets_of(Settings(), {"OPENAI_API_KEY": "s3cret/of=short+the settings"}))
    assert "short" not in written and HIDDEN in written


@pytest.mark.parametrize(
    "text",
    [
        "a call to /v1/realtime was refused: this server wants one of its API keys, as a bearer token",
        "X-Twilio-Signature does not fit; see the settings twilio_auth_token and public_url",
        "call sess_0123456789abcdef began: realtime, key 1a2b3c4d, 127.0.0.1",
        "task-oriented, a disk-based key: none of these is one; Task-1234567",
        "GET /v1/sessions/sess_1/events?last_event_id=event_1 HTTP/1.1",
    ],
)
def test_harmless_text_is_not_hidden(text: str) -> None:
    assert safe(text, secrets_of(Settings(), {"OPENAI_API_KEY": "none"})) == text


def test_long_record_loses_its_middle_and_no_pattern_is_slow_with_it() -> None:
    """One that is quadratic would take minutes for this."""
    for piece in ("a", "key-", "bearer ", "authorization: '\\", "...", "?key", "rj_", "sk-a ", "\n", "%2"):
        written = safe(piece * 100_000)
        assert len(written) <= LONGEST_LOGGED
        for pattern in PATTERNS:
            pattern.sub("", piece * 100_000)
    written = safe(f"begin {'x ' * 4080}rj_{'secret' * 20} {'y ' * 5000}conv_{'secret' * 600} end")
    assert written.startswith("begin x") and written.endswith(" end") and "secret" not in written


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    """Let this process log as the server does; a library's own handler writes to what is returned."""
    factory, said = logging.getLogRecordFactory(), io.StringIO()
    handler, library = logging.StreamHandler(said), logging.getLogger("a.library")
    library.addHandler(handler)
    library.propagate = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SafeRecord, "secrets", ("the-settings-value",))
        logging.setLogRecordFactory(SafeRecord)
        yield said
    logging.setLogRecordFactory(factory)
    library.removeHandler(handler)


def test_handler_of_a_library_hides_them_too(heard: io.StringIO) -> None:
    """In a message, in its arguments, in tracebacks and their causes, and where the arguments do not fit."""
    library = logging.getLogger("a.library")
    library.warning("headers: %r", {"Authorization": f"Bearer {KEY}"}, stack_info=True)
    library.warning("%d bytes of %s", KEY, "the-settings-value")
    try:
        try:
            raise ValueError(f"bad header Authorization: Bearer {KEY}")
        except ValueError as error:
            raise ExceptionGroup("several", [RuntimeError("the-settings-value")]) from error
    except ExceptionGroup:
        library.exception("it failed with %s", KEY)
    written = heard.getvalue()
    assert KEY not in written and "the-settings-value" not in written
    for kept in ("headers: {'Authorization': ***", "bytes of", "bad header", "ExceptionGroup", "it failed"):
        assert kept in written


# --- the lines of calls -------------------------------------------------------------------------------------


def ours(server: Server) -> list[str]:
    """Return what the log says of calls: level and message."""
    lines = [line.split(" ", 3) for line in server.log.read_text().splitlines() if ".call_log " in line]
    return [line[3] for line in lines]


def test_log_at_its_default_level_is_two_lines_a_call(tmp_path: Path) -> None:
    """Nothing else: libraries tell of each request, and uvicorn of its own start."""
    with serving(tmp_path, llm="scripted:llm|Yes.") as server:
        with Talk(server) as talk:
            id_ = talk.seen[0]["session"]["id"]
            talk.turn()
            talk.turn()
        server.wait_idle()
        begun, ended = ours(server)
        assert begun == f"INFO call {id_} began: realtime, no key, 127.0.0.1"
        about = (
            rf"INFO call {id_} ended: realtime, no key, 127\.0\.0\.1, \d+\.\d s, 2 turns: the client has left"
        )
        assert re.fullmatch(about, ended)
    lines = server.log.read_text().splitlines()
    others = [line for line in lines if ".call_log " not in line and BLOCKED not in line]
    assert all(" ready in " in line or line.startswith("Talk to it at ") for line in others), others


def typed(talk: Talk) -> None:
    """Say something: a conversation without content is not kept."""
    words = {"type": "input_text", "text": "Hello."}
    talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": [words]})
    talk.until("conversation.item.done")


def test_log_has_the_loss_and_the_return_of_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    with serving(tmp_path, resume_s="1") as server:
        for _ in range(10):  # on a busy machine a client may come too late, and begins a new call
            with Talk(server, additional_headers=SHOWN) as talk:
                id_, query = talk.seen[0]["session"]["id"], f"&conversation_id={created(talk)}"
                typed(talk)
                talk.cut()
            with Talk(server, query=query, additional_headers=SHOWN) as back:
                came_back = id_ in [e["session"]["id"] for e in back.seen if e["type"] == "session.created"]
                if came_back:
                    back.cut()
            server.wait_idle()
            if came_back:
                break
        assert came_back
        who = f"realtime, key {hashed(KEY)[:8]}, 127.0.0.1"
        lost = "lost its socket: it broke off; it waits 1 s for its client"
        begun, first, came, second, ended = ours(server)[-5:]
        assert begun == f"INFO call {id_} began: {who}"
        assert first == second == f"INFO call {id_} {lost}"
        assert re.fullmatch(rf"INFO call {id_} came back after \d+\.\d s: 127\.0\.0\.1", came)
        assert ended.startswith(f"INFO call {id_} ended: {who}, ")
        assert ended.endswith(" 0 turns: the client has not come back within 1 s")


def test_log_has_calls_that_end_with_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server, Talk(server) as cut, Talk(server):
        typed(cut)
        cut.cut()
        deadline = time.monotonic() + PATIENCE
        while len(ours(server)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
    ended = [line for line in ours(server) if " ended: " in line]
    assert len(ended) == 2 and all(line.endswith(": the server is shutting down") for line in ended)


def test_log_has_the_last_digits_of_a_callers_number(tmp_path: Path) -> None:
    """Exotel tells the number itself; Twilio and Vonage tell it where a parameter has it."""
    sims = (ExotelSim(), TwilioSim(), TwilioSim())
    sims[1].parameters = {"From": "+15550199"}  # type: ignore[misc]
    with serving(tmp_path) as server:
        for sim in sims:
            with connect(f"ws://127.0.0.1:{server.port}/v1/phone", proxy=None) as phone:
                for frame in [*sim.start(), sim.stop()]:
                    phone.send(str(frame))
                with pytest.raises(ConnectionClosed):
                    phone.recv(PATIENCE)
        server.wait_idle()
        begun = [line for line in ours(server) if " began: " in line]
        assert [line.partition("127.0.0.1")[2] for line in begun] == [
            ", number ending in 210",
            ", number ending in 199",
            "",
        ]
        assert all(line.endswith(" 0 turns: the caller has hung up") for line in ours(server)[1::2])
        assert "43210" not in server.log.read_text() and "5550" not in server.log.read_text()


def test_call_that_is_refused_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = unused_port()
    monkeypatch.setenv("REJOINDER_AUDIOSOCKET_PORT", str(port))
    monkeypatch.setenv("REJOINDER_API_KEYS", f"{hashed(KEY)}:1:100")
    with serving(tmp_path, max_sessions="1") as server:

        def refused(path: str, **options: Any) -> str:
            before = len(ours(server))
            with (
                suppress(InvalidStatus),
                connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None, **options) as call,
            ):
                with suppress(ConnectionClosed):
                    while True:
                        call.recv(PATIENCE)
            server.sessions()  # by then it is written
            (line,) = ours(server)[before:]
            return line

        def asterisk(said: bytes) -> str:
            before = len(ours(server))
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as line:
                line.sendall(said)
                while line.recv(4096):
                    pass
            server.sessions()
            (noted,) = ours(server)[before:]
            return noted

        evil = {**SHOWN, "Origin": "https://evil.example"}
        assert "WARNING a call to /v1/realtime was refused: this server wants" in refused("/v1/realtime")
        assert "pages from https://evil.example may not" in refused("/v1/pcm", additional_headers=evil)
        assert "no such parameter here" in refused("/v1/pcm?codec=1", additional_headers=SHOWN)
        assert "there is no WebSocket at /v1" in refused("/v1")
        with Talk(server, additional_headers=SHOWN):
            assert "no more calls at once than 1" in refused("/v1/realtime", additional_headers=SHOWN)
            assert ": all 1 lines are busy (127.0.0.1)" in asterisk(packet(UUID, bytes(16)) + AUDIO)
        server.wait_idle()
        assert "WARNING a call to AudioSocket was refused: it begins with b'GET'" in asterisk(b"GET /")
