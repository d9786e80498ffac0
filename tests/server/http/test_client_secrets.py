"""Client secrets: who may create one, the contents of the response, and the limits on stored secrets."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.patience import PATIENCE
from support.serving import Server, serving
from websockets.sync.client import connect

from rejoinder.agent.server import keys as keys_module
from rejoinder.agent.server.keys import MAX_KEPT, MAX_SESSION, Keys

OWN = "The word of the day is xylograph."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REJOINDER_INSTRUCTIONS", OWN)
        with serving(tmp_path_factory.mktemp("server")) as running:
            yield running


def mint(server: Server, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    """Ask for a secret; return the status and the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        sent = json.dumps(body or {}).encode()
        connection.request("POST", "/v1/realtime/client_secrets", sent, headers)
        answer = connection.getresponse()
        return answer.status, json.load(answer)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {
            "Host": "evil.example"
        },  # led here by its name: a page that reads from its own server shows no origin
        {"Origin": "http://evil.example", "Host": "evil.example"},
        {"Origin": "null"},
    ],
)
def test_page_from_elsewhere_gets_no_secret(server: Server, headers: dict[str, str]) -> None:
    status, answer = mint(server, **headers)
    assert status == 403 and answer["error"]["code"] == "forbidden"
    assert "value" not in answer and OWN not in json.dumps(answer)


def test_this_machine_gets_one(server: Server) -> None:
    for headers in ({}, {"Host": f"localhost:{server.port}"}, {"Origin": f"http://127.0.0.1:{server.port}"}):
        status, answer = mint(server, **headers)
        assert status == 200 and answer["value"].startswith("ek_")


def test_servers_own_instructions_are_not_in_the_response(server: Server) -> None:
    _, answer = mint(server)
    assert OWN not in json.dumps(answer) and "instructions" not in answer["session"]
    assert answer["session"]["audio"]["output"]["format"]["type"] == "audio/pcm", "the rest is"
    _, answer = mint(server, {"session": {"type": "realtime", "instructions": "Mine."}})
    assert answer["session"]["instructions"] == "Mine."
    with connect(
        f"ws://127.0.0.1:{server.port}/v1/realtime",
        proxy=None,
        additional_headers={"Authorization": f"Bearer {answer['value']}"},
    ) as call:
        assert json.loads(call.recv(timeout=PATIENCE))["session"]["instructions"] == "Mine."


def test_large_session_is_refused_with_the_limit(server: Server) -> None:
    session = {"type": "realtime", "instructions": "x" * MAX_SESSION}
    status, answer = mint(server, {"session": session})
    assert status == 400 and answer["error"]["param"] == "session"
    assert str(MAX_SESSION) in answer["error"]["message"]
    status, _ = mint(server, {"session": {**session, "instructions": "x" * (MAX_SESSION - 100)}})
    assert status == 200


def test_secrets_are_bounded_by_what_they_keep() -> None:
    keys = Keys([], lambda: 0.0)
    session = {"instructions": "x" * (MAX_SESSION - 100)}
    values = [keys.mint(600.0, session)[0] for _ in range(MAX_KEPT // (MAX_SESSION - 100) + 10)]
    known = [value for value in values if keys.session(value)]
    assert MAX_KEPT - MAX_SESSION < keys.kept <= MAX_KEPT
    assert known == values[-len(known) :] and 0 < len(known) < len(values), "the oldest are forgotten"


def test_secrets_are_bounded_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "MAX_SECRETS", 200)
    keys = Keys([], lambda: 0.0)
    values = [keys.mint(600.0, {"model": "m"})[0] for _ in range(200 + 1)]
    assert keys.session(values[0]) == {} and keys.session(values[1]) == {"model": "m"}
    assert keys.kept == 200 * len(json.dumps({"model": "m"}))
