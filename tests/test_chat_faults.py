"""A chat server that is down, silent, or dies in mid-sentence, seen from the caller's end of the line."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from serving import Talk, serving

from rejoinder.agent.own_server import free_port


def token(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


@contextmanager
def chat_server(
    port: int, answer: Callable[[BaseHTTPRequestHandler, list[dict[str, str]]], None]
) -> Iterator[None]:
    """Serve ``POST /v1/chat/completions``: ``answer`` writes the body of an event stream."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            answer(self, body["messages"])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield
        finally:
            http.shutdown()
            thread.join()


def test_the_next_turn_works_when_the_server_is_back(tmp_path: Path) -> None:
    port = free_port()
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


def test_a_silent_server_is_given_up_on(tmp_path: Path) -> None:
    port = free_port()
    silent = threading.Event()

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        if silent.is_set():
            time.sleep(30)
        handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")

    with chat_server(port, answer), serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
        with Talk(server) as talk:
            silent.set()
            talk.speak()
            response = talk.until("response.done", timeout=40)["response"]
            assert response["status"] == "failed"
            cause = response["status_details"]["error"]
            assert cause["code"] == "model_timeout" and cause["type"] == "server_error"
            assert cause["message"] == "The language model did not answer in time."
            silent.clear()
            assert talk.turn()["status"] == "completed"
        server.wait_idle()
