"""Watchers of a call get its events live, without an effect on the call."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from support.callers.carriers import SIMS, TwilioSim
from support.serving import LINE, PATIENCE, THREE_LINES, Server, Talk, serving
from websockets.sync.client import connect

from rejoinder.agent.config import load
from rejoinder.agent.server.http.captions import MAX_WATCHERS
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.server.server import Server as Program
from rejoinder.agent.wires.audiosocket.protocol import UUID, identifier, packet
from rejoinder.agent.wires.feed import MAX_EVENTS, Feed
from rejoinder.agent.wires.phone.protocol import sniff
from rejoinder.pipeline import AudioChunk, EndOfTurn, PartialTranscript, ReplyAudio, ReplyDone

KEY = "rj_the_key_of_this_test"


# --- without a socket ---------------------------------------------------------------------------------------


def taken(feed: Feed, watcher: Any) -> list[dict[str, Any]]:
    return list(watcher.events.receive_nowait(MAX_EVENTS))


def test_watchers_receive_the_call_and_its_captions() -> None:
    now = [10.0]
    feed = Feed("sess_1", "realtime", 1700.0, lambda: now[0])
    feed.send_event(EndOfTurn("nobody watches", 5))
    watcher = feed.watch()
    now[0] = 12.5
    feed.send_event(EndOfTurn("hello", 5))
    feed.send_event(ReplyAudio(1, AudioChunk(b"", 16_000)))  # sound is nothing to read
    feed.send_event(ReplyDone(1, "cancelled", "hi"))
    feed.send_heard(1, "h")
    feed.send_typed("user", "typed")
    feed.send_typed("assistant", "no")
    feed.reason = "bye"
    feed.end()
    session, *rest = taken(feed, watcher)
    assert session == {"type": "session", "at": 0.0, "id": "sess_1", "wire": "realtime", "since": 1700.0}
    assert rest == [
        {"type": "user.said", "at": 2.5, "text": "hello"},
        {"type": "agent.done", "at": 2.5, "turn": 1, "status": "cancelled", "heard": "hi"},
        {"type": "agent.heard", "at": 2.5, "turn": 1, "heard": "h"},
        {"type": "user.typed", "at": 2.5, "text": "typed"},
        {"type": "ended", "at": 2.5, "reason": "bye"},
    ]
    assert watcher.events.closed and not feed.watchers


def test_watchers_are_told_of_the_same_end() -> None:
    ticks = iter(range(100))
    feed = Feed("x", "realtime", 0.0, lambda: next(ticks))
    first, second = feed.watch(), feed.watch()
    feed.end()
    assert taken(feed, first)[-1] == taken(feed, second)[-1]


def test_slow_watcher_gets_the_lost_count_and_the_end() -> None:
    feed = Feed("x", "realtime", 0.0, lambda: 0.0)
    slow, quick = feed.watch(), feed.watch()
    for number in range(2 * MAX_EVENTS):
        feed.send_event(PartialTranscript(str(number), ""))
        if number % 100 == 0:
            seen = taken(feed, quick)
    first = taken(feed, slow)
    assert [event["text"] for event in first[1:]] == [str(number) for number in range(MAX_EVENTS - 3)]
    feed.send_event(PartialTranscript("again", ""))
    lost, again = taken(feed, slow)
    assert lost == {"type": "lost", "count": MAX_EVENTS + 3} and again["text"] == "again"
    assert seen[-1]["text"] == "500", "others lose nothing by it"
    for number in range(2 * MAX_EVENTS):
        feed.send_event(PartialTranscript(str(number), ""))
    feed.end()
    *_, lost, ended = taken(feed, slow)
    assert lost["type"] == "lost" and ended["type"] == "ended"


@pytest.mark.parametrize("sim", SIMS, ids=lambda sim: sim.name)
def test_call_has_the_carriers_own_name_for_it(sim: type[TwilioSim]) -> None:
    *_, start = sim().start()
    carrier = sniff(start)
    assert carrier is not None
    assert bool(carrier.id) == (carrier.name != "Vonage"), (
        "Vonage does not tell the WebSocket which call it is"
    )
    assert isinstance(start, str) and carrier.id in start


def test_audiosocket_call_has_the_dialplans_identifier() -> None:
    assert identifier(packet(UUID, bytes(range(16)))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert identifier(packet(UUID, b"short")) == "" and identifier(packet(0x10, bytes(16))) == ""


# --- over a socket ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("watching"), llm=THREE_LINES) as server:
        yield server


class Watch:
    """Reads the events of a call, as any client of server-sent events does."""

    def __init__(self, server: Server, id_: str, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self.connection.request("GET", f"/v1/sessions/{id_}/events", headers=headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()

    def events(self) -> Iterator[dict[str, Any]]:
        for line in self.answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def until(self, type_: str) -> dict[str, Any]:
        return next(event for event in self.events() if event["type"] == type_)


def error_of(watch: Watch) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(watch.answer.read())["error"]
    return error


def test_call_is_watched_to_its_end(server: Server) -> None:
    with Talk(server) as talk:
        id_ = talk.seen[0]["session"]["id"]
        (listed,) = server.get("/v1/sessions")["data"]
        assert (listed["id"], listed["wire"]) == (id_, "realtime") and listed["since"] > 1.7e9
        with Watch(server, id_) as one, Watch(server, id_) as other:
            assert one.answer.headers["content-type"].startswith("text/event-stream")
            talk.turn()
            talk.send(
                "conversation.item.create",
                item={
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "typed"}],
                },
            )
            talk.until("conversation.item.done")
            talk.speak()
            talk.until("response.output_audio.delta")
            talk.send("response.cancel")
            talk.until("response.done")
            talk.__exit__()
            seen = list(one.events())
            assert seen[1:] == list(other.events())[1:]
    kinds = [event["type"] for event in seen]
    assert kinds[0] == "session" and kinds[-1] == "ended" and seen[-1]["reason"]
    for kind in ("user.started", "user.said", "agent.started", "agent.says", "user.typed"):
        assert kind in kinds
    said = next(event for event in seen if event["type"] == "user.said")
    assert said["text"] == "what is the weather"
    whole, cut = (event for event in seen if event["type"] == "agent.done")
    assert (whole["status"], whole["heard"]) == ("completed", (LINE * 3).strip())
    assert cut["status"] == "cancelled" and len(cut["heard"]) < len(whole["heard"])
    assert [event["at"] for event in seen] == sorted(event["at"] for event in seen)
    server.wait_idle()
    assert server.get("/v1/sessions") == {"object": "list", "data": []}


def test_unknown_calls_and_too_many_watchers(server: Server) -> None:
    with Watch(server, "sess_nobody") as watch:
        assert watch.status == 404 and error_of(watch)["code"] == "session_not_found"
    with Talk(server) as talk:
        id_ = talk.seen[0]["session"]["id"]
        watching = [Watch(server, id_) for _ in range(MAX_WATCHERS)]
        with Watch(server, id_) as refused:
            assert refused.status == 429 and error_of(refused)["code"] == "rate_limit_exceeded"
        watching.pop().__exit__()
        deadline = asyncio.run(free(server, id_))
        assert deadline, "who leaves makes room"
        for watch in watching:
            watch.__exit__()
    server.wait_idle()


async def free(server: Server, id_: str) -> bool:
    async with asyncio.timeout(PATIENCE):
        while True:
            with Watch(server, id_) as watch:
                if watch.status == 200:
                    return True
            await asyncio.sleep(0.05)


def test_watcher_that_does_not_read_leaves_the_call_alone(server: Server) -> None:
    with Talk(server) as talk:
        id_ = talk.seen[0]["session"]["id"]
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.connect(("127.0.0.1", server.port))
        raw.sendall(f"GET /v1/sessions/{id_}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x" * 8000}]}
        for _ in range(2 * MAX_EVENTS):
            talk.send("conversation.item.create", item=words)
        for _ in range(2 * MAX_EVENTS):
            talk.until("conversation.item.done")
        assert talk.turn()["status"] == "completed"
        with Watch(server, id_) as watch:
            talk.turn()
            assert watch.until("agent.done")["status"] == "completed"
        raw.close()
    server.wait_idle()


def test_telephone_call_is_watched_by_the_carriers_name_for_it(server: Server) -> None:
    sim = TwilioSim()
    with connect(f"ws://127.0.0.1:{server.port}/v1/phone", proxy=None) as phone:
        for frame in sim.start():
            phone.send(frame)
        id_ = json.loads(str(sim.start()[-1]))["start"]["callSid"]
        with Watch(server, id_) as watch:
            assert watch.until("session")["wire"] == "Twilio"
            phone.send(str(sim.stop()))
            assert watch.until("ended")["reason"] == "the caller has hung up"
    server.wait_idle()


def test_watching_needs_an_api_key_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    bearer = {"Authorization": f"Bearer {KEY}"}
    with serving(tmp_path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("POST", "/v1/realtime/client_secrets", "{}", bearer)
        secret = json.loads(connection.getresponse().read())["value"]
        connection.close()
        with Talk(server, additional_headers={"Authorization": f"Bearer {secret}"}) as talk:
            id_ = talk.seen[0]["session"]["id"]
            with pytest.raises(urllib.error.HTTPError) as refused:
                server.get("/v1/sessions")
            assert refused.value.code == 401
            refused.value.close()
            for header in ({}, {"Authorization": f"Bearer {secret}"}):
                with Watch(server, id_, **header) as watch:
                    assert watch.status == 401 and error_of(watch)["code"] == "invalid_api_key"
            with Watch(server, id_, **bearer) as watch:
                assert watch.status == 200 and next(watch.events())["id"] == id_
    assert Keys([hashed(KEY)], lambda: 0.0).is_key(KEY)


def test_without_keys_calls_are_watched_on_this_machine_only() -> None:
    def answer(*more: tuple[bytes, bytes], **given: Any) -> Response | None:
        request = Request({"type": "http", "headers": [(b"host", b"127.0.0.1:8080"), *more]})
        return Program(load(given)[0], print, print)._may_read(request, "captions")

    assert answer() is None
    passed_on = answer((b"x-forwarded-for", b"198.51.100.7"))
    assert passed_on is not None and passed_on.status_code == 403
    refused = answer(host="0.0.0.0", open_to_all=True)
    assert refused is not None and refused.status_code == 403 and b"api_keys" in bytes(refused.body)
    needed = answer(host="0.0.0.0", api_keys=hashed(KEY))
    assert needed is not None and needed.status_code == 401


def test_foreign_pages_cannot_watch(server: Server) -> None:
    with Talk(server) as talk:
        id_ = talk.seen[0]["session"]["id"]
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            with Watch(server, id_, **headers) as watch:
                assert watch.status == 403
