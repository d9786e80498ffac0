"""A chat server that is down, silent, or dies in the middle of an answer, as the caller notices it."""

import json
import threading
import time
import urllib.error
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import PATIENCE, SCRIPTED, Server, Talk, run_command, serving

from rejoinder.pipeline.replying.text.answer_filter import MAX_TOKENS


def test_the_next_turn_works_when_the_server_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for apology in ("REJOINDER_APOLOGY", "REJOINDER_CUT_APOLOGY"):
        monkeypatch.setenv(apology, "")
    port = unused_port()
    prompts: list[list[dict[str, str]]] = []

    def dies(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        prompts.append(messages)
        handler.wfile.write(token("The first sentence is whole. "))
        handler.wfile.flush()
        time.sleep(1.0)
        handler.wfile.write(token("The second one breaks"))

    def works(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        prompts.append(messages)
        handler.wfile.write(token("All is well.") + token(None, "stop") + b"data: [DONE]\n\n")

    with serving(tmp_path, wait=False, clean=False, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
        with chat_server(port, works):  # warming up needs an answer
            while '"ready"' not in json.dumps(_health(server)):
                time.sleep(0.05)
        prompts.clear()
        with Talk(server) as talk, Talk(server) as neighbour:
            assert talk.turn()["status"] == "failed"  # down
            error = [event for event in talk.seen if event["type"] == "error"]
            assert len(error) == 1 and error[0]["error"]["code"] == "model_error"
            assert error[0]["error"]["message"] == "The language model failed."
            assert f":{port}/" in server.log.read_text(), "who runs the server reads the rest in the log"
            with chat_server(port, dies):
                assert talk.turn()["status"] == "failed"
            with chat_server(port, works):
                assert talk.turn()["status"] == "completed"
                assert neighbour.turn()["status"] == "completed"
            done = [event for event in talk.seen if event["type"] == "response.done"]
            assert len(done) == 3
            last = next(messages for messages in prompts if len(messages) > 3)
            said = [message["content"] for message in last if message["role"] == "assistant"]
            assert len(said) == 1 and said[0].startswith("The first"), "what was heard is remembered"
            assert said[0].endswith("—") and "second" not in said[0], "and nothing else"
        server.wait_idle()


def _health(server: object) -> object:
    try:
        return server.get("/readyz")  # type: ignore[attr-defined]
    except OSError:
        return None


def works(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
    handler.wfile.write(token("All is well.") + token(None, "stop") + b"data: [DONE]\n\n")


def status(server: Server) -> str:
    """Return the server's answer to /readyz, "" before it listens."""
    try:
        return str(server.get("/readyz")["status"])
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return str(json.load(error)["status"])
    except OSError:
        return ""


def until(server: Server, wanted: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while wanted not in (said := status(server)):
        assert time.monotonic() < deadline and server.process.poll() is None, said
        time.sleep(0.05)
    return said


def test_a_server_starts_before_its_language_model_does(tmp_path: Path) -> None:
    port = unused_port()
    llm = f"openai:http://me:secret@127.0.0.1:{port}/v1#m"
    with serving(tmp_path, wait=False, llm=llm) as server:
        said = until(server, "the language model does not answer: ")
        assert "127.0.0.1" not in said, "callers may read it"
        with Talk(server) as talk:
            assert talk.turn()["status"] == "failed"
            with chat_server(port, works):
                assert until(server, "ready") == "ready"
                assert talk.turn()["status"] == "completed", "the same call goes on"
        server.wait_idle()
    log = server.log.read_text()
    assert f"http://127.0.0.1:{port}/v1#m: Connection error" in log
    assert not [line for line in log.splitlines() if " WARNING " in line and "secret" in line]
    assert log.count("trying again until it does") == log.count("answers now") == 1
    assert log.count("no answer yet from") == 1 and log.count("Talk to it at") == 1
    assert log.count(f"  {llm} ready in") == 1


def test_refused_key_is_reported_and_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chat server may learn of a new key only later."""
    monkeypatch.setenv("REJOINDER_LLM_KEY", "sk-very-secret")
    port, known = unused_port(), threading.Event()
    words = json.dumps({"error": {"message": "there is no key sk-very-secret"}}).encode()
    refusal = (401, "application/json", words)
    with chat_server(port, works, lambda: None if known.is_set() else refusal):
        with serving(tmp_path, wait=False, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
            until(server, "the language model does not answer: ")
            known.set()
            until(server, "ready")
    log = server.log.read_text()
    assert "401" in log and "there is no key (the key)" in log and "sk-very-secret" not in log


def test_command_that_needs_the_llm_reports_that_it_is_unreachable(tmp_path: Path) -> None:
    llm = f"openai:http://127.0.0.1:{unused_port()}/v1#m"
    soundfile.write(tmp_path / "hello.wav", np.zeros(16_000), 16_000)
    flags = [f"--{kind}={spec}" for kind, spec in {**SCRIPTED, "llm": llm}.items()]
    for command in (["ask", "hello.wav"], ["demo"]):
        done = run_command(*command, *flags, folder=tmp_path, REJOINDER_VAD="scripted:vad")
        assert done.returncode == 1 and f"{llm}: Connection error" in " ".join(done.stderr.split())


def test_invalid_model_name_ends_the_server(tmp_path: Path) -> None:
    done = run_command("serve", "--port", "0", "--llm", "openai:http://127.0.0.1/v1", folder=tmp_path)
    assert done.returncode == 1 and "write openai:http://HOST/v1#MODEL" in done.stderr


def test_a_server_that_does_not_stop_is_stopped(tmp_path: Path) -> None:
    port, left = unused_port(), threading.Event()

    def endless(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        try:
            for number in range(1_000_000):
                handler.wfile.write(token(f"{number} "))
        except ConnectionError:
            left.set()

    with chat_server(port, endless), serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
        with Talk(server) as talk:
            left.clear()
            talk.send("response.create", response={"output_modalities": ["text"]})
            response = talk.until("response.done")["response"]
            assert response["status"] == "incomplete"
            text = response["output"][0]["content"][0]["text"]
            assert text.split() == [str(number) for number in range(MAX_TOKENS)]
            assert left.wait(PATIENCE), "its connection was closed"
        server.wait_idle()


def test_a_silent_server_is_given_up_on(tmp_path: Path) -> None:
    port = unused_port()
    silent = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        if silent.is_set():
            time.sleep(30)
        handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")

    with chat_server(port, answer), serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
        with Talk(server) as talk:
            silent.set()
            talk.speak()
            response = talk.until("response.done", timeout=2 * PATIENCE)["response"]
            assert response["status"] == "failed"
            cause = response["status_details"]["error"]
            assert cause["code"] == "model_timeout" and cause["type"] == "server_error"
            assert cause["message"] == "The language model did not answer in time."
            silent.clear()
            assert talk.turn()["status"] == "completed"
        server.wait_idle()
