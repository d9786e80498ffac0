"""The question in each line of the traces file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.serving import PATIENCE, THREE_LINES, serving
from websockets.sync.client import ClientConnection, connect


def ask(call: ClientConnection, words: str) -> None:
    """Type something, and wait for the first audio of its answer."""
    call.send(json.dumps({"type": "text", "text": words}))
    while True:
        message = call.recv(timeout=PATIENCE)
        if isinstance(message, str) and json.loads(message)["type"] == "reply_started":
            break
    while not isinstance(call.recv(timeout=PATIENCE), bytes):
        pass


def test_text_typed_over_a_reply_is_the_question_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "traces.jsonl"
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(file))
    with serving(tmp_path, llm=THREE_LINES) as server:
        with connect(f"ws://127.0.0.1:{server.port}/v1/pcm", proxy=None, open_timeout=PATIENCE) as call:
            for words in ("yes", "yes", "no"):  # each interrupts the reply to the one before
                ask(call, words)
        server.wait_idle()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["turn"], line["said"]) for line in lines] == [(1, "yes"), (2, "yes"), (3, "no")]
