"""``rejoinder doctor``: says what is missing, and its exit code says whether the configuration can run."""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.cli.doctor import machine as checks
from rejoinder.agent.cli.doctor import models as model_checks
from rejoinder.agent.cli.doctor.machine import Library, check_gpu, check_library
from rejoinder.agent.cli.doctor.models import check_llms, check_model, check_server
from rejoinder.agent.config import Settings
from rejoinder.models import hints
from rejoinder.models.llm.routing.settings import RouteSettings
from rejoinder.models.weights.catalog import catalog

SCRIPTED = {
    "vad": "scripted:vad",
    "turn": "",
    "stt": "scripted:stt",
    "llm": "scripted:llm",
    "tts": "scripted:tts",
}
DEFAULTS = (
    "silero-vad",
    "smart-turn-v3.2",
    "whisper-tiny.en",
    "qwen2.5-coder-0.5b-instruct",
    "piper-en_US-joe-medium",
)


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stderr == ""
    return result.exit_code, result.stdout


def report(*arguments: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    code, out = doctor("--json", *arguments)
    whole = json.loads(out)
    return code, whole, {check["part"]: check for check in whole["checks"]}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure models that need no weights, and any free port."""
    for name, spec in SCRIPTED.items():
        monkeypatch.setenv(f"REJOINDER_{name.upper()}", spec)
    monkeypatch.setenv("REJOINDER_PORT", "0")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache."""
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


class Answers(BaseHTTPRequestHandler):
    """Answers every request with the response set on the server."""

    def do_GET(self) -> None:
        status, content = self.server.answers.get(self.path, (404, {}))  # type: ignore[attr-defined]
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.answers = {}  # type: ignore[attr-defined]
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_a_configuration_that_can_run(scripted: None, cache: Path) -> None:
    code, out = doctor()
    assert code == 0
    assert "This configuration can run." in out
    for part in (
        "Python",
        "cores",
        "memory",
        "threads",
        "GPU",
        "onnxruntime",
        "sounddevice",
        "cache",
        "port",
    ):
        assert f"\n {part}" in out


def test_paths_and_commands_are_whole_and_nothing_else_is_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a folder with a name" / ("and-a-long-path" * 6)
    monkeypatch.setenv("REJOINDER_CACHE", str(deep))
    monkeypatch.setenv("COLUMNS", "80")
    for name in SCRIPTED:
        monkeypatch.delenv(f"REJOINDER_{name.upper()}", raising=False)
    _, out = doctor("--port", "0")
    lines = out.splitlines()
    alone = [f"    {sys.executable}", f"    {deep / 'weights'}", "    rejoinder models fetch silero-vad"]
    for line in alone:
        assert line in lines
    assert [line for line in lines if len(line) > 80 and not line.startswith("    ")] == []


@pytest.mark.weights
def test_the_defaults_can_run() -> None:
    code, whole, parts = report("--port", "0")
    assert code == 0, whole["fixes"]
    assert whole["ok"] is True and whole["fixes"] == []
    assert (
        parts["stt"]["detail"] == "whisper:tiny.en: 78 MB of weights, sha256 1a5afae06a4db91c… in the catalog"
    )


def test_missing_weights_end_in_the_commands_that_fetch_them(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SCRIPTED:
        monkeypatch.delenv(f"REJOINDER_{name.upper()}", raising=False)
    code, out = doctor("--port", "0")
    assert code == 1
    last = out[out.index("This configuration cannot run yet. To fix it:") :]
    for name in DEFAULTS:
        assert f"\n  rejoinder models fetch {name}\n" in last
    code, whole, parts = report("--port", "0")
    assert code == 1 and whole["ok"] is False
    assert parts["vad"]["state"] == "missing" and parts["vad"]["fix"] == "rejoinder models fetch silero-vad"
    assert parts["stt"]["detail"] == "whisper:tiny.en: config.json is missing, and 3 more"


def test_a_file_of_the_wrong_size_is_reported(scripted: None, cache: Path) -> None:
    (file,) = catalog()["silero-vad"].files
    (cache / "silero-vad").mkdir(parents=True)
    (cache / "silero-vad" / file.name).write_bytes(b"half")
    assert check_model("vad", "silero") == (
        "broken",
        f"{file.name} is corrupt: 4 bytes, not {file.size}",
        "rejoinder models fetch silero-vad",
    )


@pytest.mark.parametrize(
    ("spec", "state", "said", "fix"),
    [
        (
            "nobody:model",
            "broken",
            "there is no adapter of this name",
            "set stt to one of: ray, scripted, whisper",
        ),
        (
            "piper:en_US-joe-medium",
            "broken",
            "is no speech recogniser",
            "set stt to one of: ray, scripted, whisper",
        ),
        (
            "whisper:huge",
            "missing",
            "whisper-huge is neither in the catalog",
            "one of: whisper:tiny.en, whisper:base",
        ),
        ("llama:huge", "missing", "huge is neither", "one of: llama:smollm2-135m-instruct"),
        ("whisper:/no/where", "missing", "/no/where is neither", "set stt to a path that exists"),
        ("silero:huge", "broken", "there is one model only", "set vad to silero"),
        ("openai:somewhere", "broken", "is not URL#MODEL", "openai:http://HOST/v1#MODEL"),
        ("hibari", "ok", "needs no weights of ours", ""),
        (f"whisper:{Path(__file__).parent}", "ok", "your own weights", ""),
        (f"whisper:{Path(__file__).parent}@de", "broken", "cannot read which languages", "whisper:base@de"),
    ],
)
def test_an_unusable_spec_is_reported_with_a_fix(
    cache: Path, spec: str, state: str, said: str, fix: str
) -> None:
    kinds = {"llama": "llm", "openai": "llm", "silero": "vad", "hibari": "tts"}
    found = check_model(kinds.get(spec.partition(":")[0], "stt"), spec)
    assert found[0] == state and said in found[1] and fix in found[2]


def test_a_language_model_server_is_checked(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = server.answers  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{server.server_port}/v1"
    answers["/v1/models"] = 200, {"data": [{"id": "good"}, {"id": "better"}]}
    assert check_server(f"{url}#good") == ("ok", "answers", "")
    assert check_server(f"{url}/#good") == ("ok", "answers", "")
    state, said, fix = check_server(f"{url}#best")
    assert (state, said) == ("broken", "answers, and has no best") and fix.endswith("one of: good, better")
    answers["/v1/models"] = 401, {}
    monkeypatch.delenv("REJOINDER_LLM_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    wanted = ("broken", "wants a key (HTTP 401)", "put one into REJOINDER_LLM_KEY")
    assert check_server(f"{url}#good") == wanted
    for name in ("OPENAI_API_KEY", "REJOINDER_LLM_KEY"):
        monkeypatch.setenv(name, "an old one")
        refused = ("broken", f"refuses the key in {name} (HTTP 401)", "put the right one into it")
        assert check_server(f"{url}#good") == refused
    answers["/v1/models"] = 500, {}
    assert check_server(f"{url}#good")[:2] == ("broken", "answers HTTP 500")
    del answers["/v1/models"]
    assert check_server(f"{url}#good")[0] == "ok"  # it need not have a list of its models
    for odd in ([], {"data": None}, {"data": [3]}, "text"):
        answers["/v1/models"] = 200, odd
        assert check_server(f"{url}#good")[0] == "ok"


def test_the_language_model_for_a_busy_machine_is_checked() -> None:
    settings = Settings.model_validate({**SCRIPTED, "llm": "scripted:large", "busy_llm": "scripted:small"})
    found = [(each.state, each.detail.partition(": ")[0]) for each in check_llms(settings)]
    assert found == [("ok", "scripted:large"), ("ok", "scripted:small")]


def test_a_rule_that_the_server_refuses_is_reported(scripted: None, cache: Path) -> None:
    rule = RouteSettings(model="small", max_words=3)
    settings = Settings(llm="scripted:llm|Hello.", routes=[rule])
    (found,) = [check for check in check_llms(settings) if check.part == "routes"]
    assert found.detail == "rule 1: 'small' is none of the models in llm: scripted:llm|Hello."
    assert found.state == "broken" and found.needed


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n\r\nhello", None])
def test_an_unusable_llm_server_is_reported(greeting: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_checks, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                if greeting is not None:
                    peer.sendall(greeting)
                else:
                    peer.recv(65536)  # silent until the other side gives up

        answering = threading.Thread(target=answer)
        answering.start()
        state, said, _ = check_server(f"http://127.0.0.1:{listening.getsockname()[1]}/v1#m")
        answering.join()
    assert state == "broken" and said.startswith("does not answer: ")


def test_a_server_that_is_down_keeps_the_configuration_from_running(scripted: None, cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    code, whole, parts = report("--llm", f"openai:http://127.0.0.1:{port}/v1#m")
    assert code == 1 and "Connection refused" in parts["llm"]["detail"]
    assert whole["fixes"] == [f"start the server at http://127.0.0.1:{port}/v1, or set llm to another"]


def test_a_server_that_is_down_is_reported_where_another_model_answers(scripted: None, cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    code, whole, _ = report("--llm", f"openai:http://127.0.0.1:{port}/v1#m scripted:llm")
    assert code == 0 and whole["fixes"] == []
    (down,) = [one for one in whole["checks"] if "Connection refused" in one["detail"]]
    assert down["state"] == "broken"


def test_a_port_in_use_is_reported_unless_a_rejoinder_uses_it(
    scripted: None, cache: Path, server: ThreadingHTTPServer
) -> None:
    code, _, parts = report("--port", str(server.server_port))
    assert code == 1
    assert parts["port"]["state"] == "broken" and parts["port"]["fix"] == "rejoinder serve --port 0"
    server.answers["/healthz"] = 200, {"status": "ok", "sessions": 0}  # type: ignore[attr-defined]
    code, _, parts = report("--port", str(server.server_port))
    assert code == 0 and parts["port"]["detail"].endswith("a Rejoinder is running there")


def test_libraries_that_are_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "is_checkout", lambda: False)
    absent = Library("no_such_library", ("nothing",), "more", "more")
    assert check_library(absent, True) == checks.Check(
        "no_such_library", "missing", "more", "pip install 'rejoinder[more]'", True
    )
    (tmp_path / "broken_library.py").write_text(
        "raise OSError('libgomp.so.1: cannot open shared object file')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    broken = check_library(Library("broken_library", ("broken-library",), "", "more"), False)
    assert broken.state == "broken" and "libgomp.so.1" in broken.detail
    assert broken.fix == "pip install --force-reinstall broken-library"
    monkeypatch.setattr(hints, "is_checkout", lambda: True)
    assert check_library(absent, True).fix == ".venv/bin/pip install -e '.[more]'"


@pytest.mark.skipif(os.name != "posix", reason="fakes a program with a shell script")
@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ("echo 'NVIDIA H200, 143771 MiB, 570.1'", "ok", "NVIDIA H200, 143771 MiB, 570.1"),
        ("echo 'No devices were found'; exit 6", "broken", "nvidia-smi: No devices were found"),
        ("sleep 5", "broken", "nvidia-smi does not answer"),
    ],
)
def test_a_gpu_is_found_through_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str, said: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(checks, "GPU_SECONDS", 0.5)
    found = check_gpu()
    assert found.state == state and said in found.detail and not found.needed


def test_a_full_cache_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SCRIPTED:
        monkeypatch.delenv(f"REJOINDER_{name.upper()}", raising=False)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    code, whole, parts = report("--port", "0")
    assert code == 1 and "0.6 GB to fetch" in parts["cache"]["detail"]
    assert "name another folder in REJOINDER_CACHE" in whole["fixes"]
