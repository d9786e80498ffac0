"""Error messages for callers on every wire, and the details that only the log has."""

from __future__ import annotations

import http.client
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from support.callers.carriers import TwilioSim
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import PATIENCE, Server, Talk, serving
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rejoinder.agent.wires.failures import Unanswered, public_error, reported
from rejoinder.pipeline import CallOver, ModelError, Overloaded, PipelineError, ProtocolError
from rejoinder.pipeline.errors import asking

MODEL = "the-models-name"
SECRET = "the-secret-of-the-back-end"
SAID = "The language model failed."


@contextmanager
def refusing(port: int) -> Iterator[None]:
    """Serve answers with the status 500 and a secret in them."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"error": {"message": SECRET, "type": "x", "code": "y"}}).encode()
            self.send_response(500)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as program:
        program.daemon_threads = True
        thread = threading.Thread(target=program.serve_forever)
        thread.start()
        try:
            yield
        finally:
            program.shutdown()
            thread.join()


class Wires:
    """Every wire of one server. Each method returns all that its client was sent, and the id it knows."""

    def __init__(self, server: Server, wyoming_port: int) -> None:
        self._server = server
        self._wyoming_port = wyoming_port

    def realtime(self) -> tuple[str, str]:
        """A call and its watcher: both get the same error."""
        with ExitStack() as stack:
            talk = stack.enter_context(Talk(self._server))
            id_ = next(e for e in talk.seen if e["type"] == "session.created")["session"]["id"]
            watching = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
            stack.callback(watching.close)
            watching.request("GET", f"/v1/sessions/{id_}/events")
            feed = watching.getresponse()
            response = talk.turn()
            beside = {"conversation": "none", "output_modalities": ["text"]}
            talk.send("response.create", response=beside)
            aside = talk.until("response.done")["response"]
            for one in (response, aside):
                assert one["status"] == "failed" and one["status_details"]["error"]["message"] == SAID
                assert one["status_details"]["error"]["code"] == "model_error"
                assert one["status_details"]["error"]["type"] == "server_error"
            seen = ""
            while "agent.done" not in seen:
                seen += feed.fp.readline().decode()
            assert SAID in seen
            return json.dumps(talk.seen) + seen, id_

    def pcm(self) -> tuple[str, str]:
        with connect(f"ws://127.0.0.1:{self._server.port}/v1/pcm", proxy=None) as one:
            id_, said = json.loads(one.recv(timeout=PATIENCE))["id"], ""
            one.send(json.dumps({"type": "text", "text": "hello"}))
            while "reply_ended" not in said:
                said += str(one.recv(timeout=PATIENCE))
            assert f'"error": "{SAID}"' in said
            return said, id_

    def phone(self) -> tuple[str, str]:
        sim, said = TwilioSim(), ""
        loud = np.random.default_rng(0).normal(0.0, 6000.0, 160).astype("<i2").tobytes()
        with connect(f"ws://127.0.0.1:{self._server.port}/v1/phone", proxy=None) as line:
            for frame in sim.start():
                line.send(frame)
            with pytest.raises(ConnectionClosed) as closed:
                for turn in (1, 2):
                    for chunk in [loud] * 30 + [bytes(320)] * 60:
                        for frame in sim.audio(chunk):
                            line.send(frame)
                    self._noted(f"CA00000000000000000000000000000000: turn {turn} failed")
                while True:
                    said += str(line.recv(timeout=PATIENCE))
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011
        assert closed.value.rcvd.reason.endswith(SAID)
        return said + closed.value.rcvd.reason, "CA0000"

    def _noted(self, words: str) -> None:
        """Wait until the log has these words. A caller on a telephone gets no error message."""
        deadline = time.monotonic() + PATIENCE
        while words not in self._server.log.read_text():
            assert time.monotonic() < deadline, f"the log has no {words}"
            time.sleep(0.05)

    def chat(self, stream: bool) -> tuple[str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        try:
            asked = {"model": "default", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
            connection.request("POST", "/v1/chat/completions", json.dumps(asked))
            answer = connection.getresponse()
            said = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 500 and json.loads(said)["error"]["message"] == SAID
        return said + str(answer.headers), str(answer.headers["X-Request-Id"])

    def wyoming(self) -> tuple[str, str]:
        with socket.create_connection(("127.0.0.1", self._wyoming_port), timeout=PATIENCE) as one:
            one.sendall(json.dumps({"type": "transcript", "data": {"text": "hello"}}).encode() + b"\n")
            said = ""
            while "not-handled" not in said or SAID not in said:
                data = one.recv(65536)
                assert data, said
                said += data.decode()
            return said, "Wyoming: connection"


@pytest.mark.parametrize("down", [False, True])
def test_no_wire_reveals_internal_details_of_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    monkeypatch.setenv("REJOINDER_APOLOGY", "")  # with one, a telephone call goes on
    port, wyoming_port = unused_port(), unused_port()

    def works(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        handler.wfile.write(token("All is well.") + token(None, "stop") + b"data: [DONE]\n\n")

    flags = {"llm": f"openai:http://127.0.0.1:{port}/v1#{MODEL}", "wyoming_port": str(wyoming_port)}
    with ExitStack() as stack:
        with chat_server(port, works):
            server = stack.enter_context(serving(tmp_path, **flags))
        if not down:
            stack.enter_context(refusing(port))
        wires = Wires(server, wyoming_port)
        outputs = [wires.realtime(), wires.pcm(), wires.chat(False), wires.chat(True), wires.wyoming()]
        outputs.append(wires.phone())
        told = "".join(said for said, _ in outputs)
        for inner in (f":{port}", MODEL, SECRET, "openai", "onnection error", "Errno", "Traceback"):
            assert inner not in told, f"{inner} was told to a caller"
        log = server.log.read_text()
        for _, id_ in outputs:
            lines = [line for line in log.splitlines() if id_ in line and MODEL in line and str(port) in line]
            assert lines, f"the log has nothing about {id_}"
            assert down or SECRET in lines[0]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ModelError("openai:http://h#m", "no"), "model_error", "The model failed."),
        (ModelError("m", "no", "model_timeout"), "model_timeout", "The model did not answer in time."),
        (Overloaded("64 jobs wait", "whisper"), "overloaded", "Too many callers want an answer"),
        (Overloaded("all 3 lines are busy"), "overloaded", "all 3 lines are busy"),
        (ProtocolError("n: not spoken here", "unsupported"), "unsupported", "n: not spoken here"),
        (CallOver("it has lasted"), "session_expired", "it has lasted"),
        (Unanswered("2 have failed"), "server_error", "2 have failed"),
        (PipelineError("inner"), "server_error", "Something went wrong"),
        (ValueError("inner"), "server_error", "Something went wrong"),
    ],
)
def test_only_messages_written_for_callers_are_passed_on(error: Exception, code: str, message: str) -> None:
    plain = public_error(error)
    assert plain.code == code and plain.message.startswith(message)


def test_error_names_the_model_that_failed() -> None:
    with pytest.raises(ModelError) as failed, asking("outer"), asking("voice"):
        raise ModelError("piper", "hoarse")
    assert public_error(failed.value).message == "The voice failed."


def test_log_has_the_full_error_on_single_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        reported("call sess_1\nforged", "turn 3 failed", ModelError("m", "two\nlines"))
    assert caplog.messages == ["call sess_1?forged: turn 3 failed: m: two?lines"]
    assert not re.search("\n", caplog.messages[0]) and caplog.records[0].exc_info is None
