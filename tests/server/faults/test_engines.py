"""Engines that raise, panic, run out of memory, hang or end their thread, under a running server."""

from __future__ import annotations

import json
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.servers.faults import ask, faulty_serving, metric, shout, talking, until
from support.serving import Server, Talk
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.bench.faults.models import FAULT_OF_STT, HANG_VARIABLE

pytestmark = pytest.mark.server

FAST = "raise", "panic", "exit", "memory"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REJOINDER_APOLOGY", "Sorry.")
        patch.setenv(FAULT_OF_STT, "raise")
        with faulty_serving(tmp_path_factory.mktemp("faulty")) as running:
            yield running


def log_of(server: Server) -> str:
    return server.log.read_text()


def test_voice_that_fails_costs_one_reply(server: Server) -> None:
    before = metric(server, "engine_failed_steps_total", engine="faulty-tts")
    errors = metric(server, "errors_total", role="tts")
    with Talk(server) as victim, talking(server) as others:
        others.answered(1)
        for fault in FAST:
            response = ask(victim, f"Please {fault} now.")
            assert response["status"] == "failed"
            assert response["status_details"]["error"]["message"] == "The voice failed."
        assert ask(victim, "And again.")["status"] == "completed"
        others.answered(1)
    assert metric(server, "engine_failed_steps_total", engine="faulty-tts") == before + len(FAST)
    assert metric(server, "errors_total", role="tts") == errors + len(FAST)
    said = log_of(server)
    assert "failed to allocate" in said.lower() or "bad_alloc" in said, "the error of onnxruntime"
    assert f"turn {len(FAST)} failed: faulty-tts: " in said
    assert server.get("/readyz")["status"] == "ready"


def test_language_model_that_fails_is_excused(server: Server) -> None:
    before = metric(server, "engine_failed_steps_total", engine="faulty-llm")
    with Talk(server) as victim, talking(server) as others:
        others.answered(1)
        for fault in FAST:
            response = ask(victim, f"model {fault}.")
            assert response["status"] == "failed"
            assert response["output"][0]["content"][0]["transcript"] == "Sorry."
        assert ask(victim, "And again.")["status"] == "completed"
        others.answered(1)
    assert metric(server, "engine_failed_steps_total", engine="faulty-llm") == before + len(FAST)


def test_turn_that_the_recogniser_misses_is_excused(server: Server) -> None:
    errors = metric(server, "errors_total", role="stt")
    with Talk(server) as victim, talking(server) as others:
        others.answered(1)
        response = shout(victim)
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["message"] == "The speech recogniser failed."
        assert victim.turn()["status"] == "completed"
        others.answered(1)
    assert metric(server, "errors_total", role="stt") == errors + 1


def test_engine_with_one_thread_refuses_until_its_step_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recogniser's steps share state, as those of Whisper and of the embedded language model do."""
    for name, value in {"REJOINDER_MAX_STEP_S": "0.5", FAULT_OF_STT: "hang", HANG_VARIABLE: "8"}.items():
        monkeypatch.setenv(name, value)
    with faulty_serving(tmp_path) as server, Talk(server) as victim:
        response = shout(victim)
        assert response["status_details"]["error"]["code"] == "model_timeout"
        unheard = next(event for event in victim.seen if event["type"].endswith("transcription.failed"))
        assert unheard["error"]["code"] == "model_timeout"
        until(lambda: "no calls are taken: the speech recogniser" in log_of(server), "nothing was logged")
        with pytest.raises(urllib.error.HTTPError):
            server.get("/readyz")
        until(lambda: "all models work again" in log_of(server), "it does not recover")
        assert server.get("/readyz")["status"] == "ready"
        assert victim.turn()["status"] == "completed"


@pytest.mark.parametrize("words", ["Please hang now.", "model hang."])
def test_step_that_hangs_is_given_up_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """The third one that hangs leaves no thread: the server refuses calls, and says why."""
    monkeypatch.setenv("REJOINDER_MAX_STEP_S", "0.5")
    name, role = ("faulty-llm", "llm") if "model" in words else ("faulty-tts", "tts")
    with faulty_serving(tmp_path) as server, Talk(server) as victim:
        with talking(server) as others:
            others.answered(1)
            response = ask(victim, words)
            assert response["status"] == "failed"
            assert response["status_details"]["error"]["code"] == "model_timeout"
            others.answered(2)
        assert "the step is given up" in server.log.read_text()
        assert f"{name} has not finished a step" in server.log.read_text()
        assert metric(server, "engine_hung_steps", engine=name) == 1
        others_go_on = ("engine_replaced_threads_total", "engine_handed_over_steps_total")
        assert sum(metric(server, each, engine=name) for each in others_go_on) == 1
        assert server.get("/readyz")["status"] == "ready"
        for _ in range(2):
            assert ask(victim, words)["status"] == "failed"
        until(lambda: "no calls are taken" in server.log.read_text(), "nothing was logged")
        with pytest.raises(urllib.error.HTTPError) as not_ready:
            server.get("/readyz")
        assert not_ready.value.code == 503
        known = {"llm": "language model", "tts": "voice"}[role]
        status = json.load(not_ready.value)["status"]
        assert known in status and status.endswith("does not work at this moment: the log says why")
        with pytest.raises((InvalidStatus, ConnectionClosed)), Talk(server):
            pass
        assert ask(victim, "And again.")["status"] == "failed", "at once, not after a wait"


def test_server_with_a_step_that_hangs_ends_in_order(tmp_path: Path) -> None:
    with faulty_serving(tmp_path) as server, Talk(server) as victim:
        threading.Thread(target=lambda: ask_in_vain(victim), daemon=True).start()
        until(lambda: "the step hangs" in log_of(server), "no step hangs")
        server.process.terminate()
        assert server.process.wait(timeout=20) == 0
        assert "faulty-tts does not finish its step, and is left behind" in log_of(server)


def ask_in_vain(victim: Talk) -> None:
    with suppress(ConnectionClosed, AssertionError):
        ask(victim, "Please hang.")
