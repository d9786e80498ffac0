"""A server with guardrails in its configuration, and a real moderation endpoint: live calls."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.ports import unused_port
from support.servers.moderation import moderation_server
from support.serving import PATIENCE, Talk, run_command, serving
from websockets.sync.client import connect

SORRY = "I would rather not."
REPLY = "scripted:llm|Here is the sugar. Here is the poison. Enjoy it."


def configure(folder: Path, port: int, **more: Any) -> Path:
    """Write the configuration with a moderation endpoint, and return the trace file, which is not there."""
    traces = folder / "traces.jsonl"
    traces.unlink(missing_ok=True)
    settings = {"moderation": f"openai:http://127.0.0.1:{port}/v1#omni", "wait_s": 0.6, "say": SORRY, **more}
    lines = [f"trace_file = {json.dumps(str(traces))}", "[guard]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (folder / "rejoinder.toml").write_text("\n".join(lines))
    return traces


def slow(handler: BaseHTTPRequestHandler) -> tuple[int, bytes]:
    time.sleep(1.5)
    return 200, b"{}"


def said(response: dict[str, Any]) -> str:
    return " ".join(item["content"][0]["transcript"] for item in response["output"])


def test_a_live_call_hears_nothing_that_moderation_refuses(tmp_path: Path) -> None:
    """The endpoint works, is down and talks garbage, all in one call; then it is slow.

    Where it works it is waited for as long as can be set, since the machine may be busy.
    """
    port = unused_port()
    traces = configure(tmp_path, port, wait_s=5.0)
    with serving(tmp_path, llm=REPLY, tts="scripted:tts") as server:
        with Talk(server) as talk:
            with moderation_server(port=port) as endpoint:
                response = talk.turn()
            assert said(response) == f"Here is the sugar. {SORRY}"
            assert response["status"] == "incomplete"
            assert response["status_details"] == {"type": "incomplete", "reason": "content_filter"}
            assert endpoint.asked[0]["model"] == "omni"
            assert all("poison" not in json.dumps(event) for event in talk.seen)
            whole = REPLY.partition("|")[2]
            assert said(talk.turn()) == whole, "the endpoint is down, and the guard is not strict"
            with moderation_server(lambda handler: (200, b"[1"), port):
                assert said(talk.turn()) == whole
        server.wait_idle()
        assert "a guard failed" in server.log.read_text()
    lines = [json.loads(line) for line in traces.read_text().splitlines()]
    assert [line.get("refused") for line in lines] == ["violence, violence/graphic", None, None]
    assert lines[0]["heard"] == f"Here is the sugar. {SORRY}" and lines[0]["counts"]["refused"] == 1
    assert lines[1]["counts"]["guard_undecided"] >= 1
    configure(tmp_path, port)
    with moderation_server(slow, port), serving(tmp_path, llm=REPLY, tts="scripted:tts") as server:
        with Talk(server) as talk:
            assert said(talk.turn()) == whole
        server.wait_idle()
        assert "a guard did not answer within 0.6 s" in server.log.read_text()
    (line,) = map(json.loads, traces.read_text().splitlines())
    assert "refused" not in line or line["refused"] is None


def test_a_strict_guard_says_nothing_that_is_not_judged(tmp_path: Path) -> None:
    configure(tmp_path, unused_port(), strict=True, block=["sugar"])
    with serving(tmp_path, llm="scripted:llm|Here is a cake.") as server:
        with connect(f"ws://127.0.0.1:{server.port}/v1/pcm", proxy=None, open_timeout=PATIENCE) as call:
            call.send(json.dumps({"type": "text", "text": "hello"}))
            messages: list[dict[str, Any]] = []
            while not messages or messages[-1]["type"] != "reply_ended":
                if isinstance(message := call.recv(timeout=PATIENCE), str):
                    messages.append(json.loads(message))
        server.wait_idle()
    told = {message["type"]: message for message in messages}
    assert told["reply_refused"] == {"type": "reply_refused", "turn": 1, "reason": "undecided"}
    assert (told["reply_ended"]["status"], told["reply_ended"]["heard"]) == ("incomplete", SORRY)
    assert " ".join(one["text"] for one in messages if one["type"] == "reply_text") == SORRY


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ('redact = ["passport"]', "guard.redact: 'passport' cannot be redacted: there are card,"),
        ('block = "damn"', "guard.block is 'damn' and has to be a list"),
        ('patterns = {x = "("}', "guard.patterns: x: '(' is not a regular expression"),
        ('scripts = ["klingon"]', "guard.scripts: 'klingon' is no alphabet"),
        ('region = "germany"', "guard.region is 'germany' and has to be a country in two capital"),
        ('moderation = "http://x"', "guard.moderation is 'http://x' and has to be openai:http://HOST"),
        ('blocks = ["x"]', "there is no setting 'blocks' in [guard]; did you mean block?"),
    ],
)
def test_a_rule_that_cannot_work_is_named_at_the_start(tmp_path: Path, settings: str, reason: str) -> None:
    (tmp_path / "rejoinder.toml").write_text(f"[guard]\n{settings}")
    done = run_command("serve", "--print-config", folder=tmp_path)
    assert reason in " ".join(done.stderr.split())


def test_a_list_in_the_environment_is_json(tmp_path: Path) -> None:
    done = run_command("serve", "--print-config", folder=tmp_path, REJOINDER_GUARD_BLOCK="damn")
    assert "one of REJOINDER_GUARD_… has to be a list or an object in JSON" in " ".join(done.stderr.split())
    done = run_command("serve", "--print-config", folder=tmp_path, REJOINDER_GUARD_BLOCK='["damn"]')
    assert "['damn']" in done.stdout


def test_passwords_in_addresses_are_not_shown(tmp_path: Path) -> None:
    moderation = "openai:http://me:secret@127.0.0.1:9/v1#x"
    done = run_command(
        "serve", "--print-config", folder=tmp_path, REJOINDER_ANSWER_CACHE="redis://:secret@127.0.0.1:9/0",
        REJOINDER_GUARD_MODERATION=moderation,
    )  # fmt: skip
    assert done.returncode == 0 and "secret" not in done.stdout + done.stderr
