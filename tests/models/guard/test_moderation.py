"""A moderation endpoint that answers, refuses, lies, is slow or down: real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from support.ports import unused_port
from support.servers.moderation import moderation_server

from rejoinder.models.guard.moderation import Moderation, moderation
from rejoinder.pipeline import ModelError

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server take its time: a busy machine needs more than a call would wait."""
    for seconds in ("guard.moderation.MODERATION_SECONDS", "llm.openai.CONNECT_SECONDS"):
        monkeypatch.setattr(f"rejoinder.models.{seconds}", 60.0)


def ask(judge: Moderation, text: str) -> str:
    async def once() -> str:
        try:
            return await judge(text)
        finally:
            await judge.aclose()

    return asyncio.run(once())


def test_flagged_text_has_its_categories_as_the_reason() -> None:
    with moderation_server() as server:
        judge = moderation(f"openai:{server.url}#omni", "sk-1")
        assert ask(judge, "the poison is here") == "violence, violence/graphic"
        assert ask(judge, "sugar") == "", "and the judge works again after it was closed"
    assert server.asked == [
        {"input": "the poison is here", "model": "omni"},
        {"input": "sugar", "model": "omni"},
    ]
    assert server.keys == ["Bearer sk-1"] * 2


def test_the_model_may_be_left_to_the_server() -> None:
    with moderation_server() as server:
        ask(moderation(f"openai:{server.url}"), "sugar")
    assert server.asked == [{"input": "sugar"}]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"not json", "moderation:"),
        (b"{}", "moderation:"),
        (b"[]", "moderation:"),
        (b'{"results": []}', "moderation:"),
        (b'{"results": [{}]}', "moderation:"),
        (b'{"results": [{"flagged": "yes", "categories": {}}]}', "flagged is 'yes'"),
        (b'{"results": [{"flagged": true, "categories": null}]}', "moderation:"),
        (b'{"results": [' + b" " * 2**21 + b"]}", "1 MiB"),
    ],
)
def test_garbage_is_an_error(answer: bytes, reason: str) -> None:
    with moderation_server(lambda handler: (200, answer)) as server:
        with pytest.raises(ModelError, match=reason):
            ask(Moderation(server.url), "sugar")


def test_a_refusal_shows_its_status_and_neither_the_key_nor_the_words() -> None:
    words = json.dumps({"error": {"message": "no key sk-secret for sugar"}}).encode()
    with moderation_server(lambda handler: (401, words)) as server:
        with pytest.raises(ModelError, match=r"HTTP 401$"):
            ask(Moderation(server.url, key="sk-secret"), "sugar")
    assert len(server.asked) == 1, "it is not asked again"


def test_a_server_that_is_down_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"moderation:http://127\.0\.0\.1"):
        ask(Moderation(f"http://127.0.0.1:{unused_port()}/v1"), "sugar")


def test_cancelling_closes_the_request() -> None:
    asked, left = threading.Event(), threading.Event()

    def hang(handler: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        asked.set()
        handler.connection.settimeout(20.0)
        handler.connection.recv(1)  # returns when the client closes
        left.set()
        return 200, b"{}"

    async def impatient(judge: Moderation) -> None:
        asking = asyncio.create_task(judge("sugar"))
        try:
            assert await asyncio.to_thread(asked.wait, 20.0)
            asking.cancel()
            await asking
        finally:
            await judge.aclose()

    with moderation_server(hang) as server:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(impatient(Moderation(server.url)))
        assert left.wait(20.0)
