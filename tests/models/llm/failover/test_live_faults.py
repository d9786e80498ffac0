"""Real chat servers with real faults, as callers of a real server hear them."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from support.ports import unused_port
from support.servers.faulty import WORDS, Faulty, faulty_server
from support.serving import Server, Talk, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.models.llm.failover.failover import NONE_ANSWERS

pytestmark = pytest.mark.server

DEADLINE_S = 1.0
"""In front of the first token or between two, wherever the fault is. Elsewhere a busy machine has time."""
PATIENT_S = 20.0
ALLOWED_S = 10.0
"""What a caller may wait beyond the deadline: far less than a server hangs."""
FAULTS = ["killed", "hung", "garbage", "429", "500", "slow", "empty"]
LATER = ["killed in mid-sentence", "hung in mid-sentence", "slow in mid-sentence"]
SORRY = "Sorry, not now."
LOST = "Sorry, I got lost."
BYE = "Call again later."
HEADER = f"""
trace_file = "trace.jsonl"
speculate = "never"
apology = "{SORRY}"
cut_apology = "{LOST}"
"""
Deadlines = tuple[float, float, float]
"""The longest waits for the first token, the first clause, and between two tokens."""
PATIENT: Deadlines = (PATIENT_S, PATIENT_S, PATIENT_S)
AT_FIRST: Deadlines = (DEADLINE_S, PATIENT_S, PATIENT_S)
THEN: Deadlines = (PATIENT_S, DEADLINE_S, PATIENT_S)
LATER_ON: Deadlines = (PATIENT_S, PATIENT_S, DEADLINE_S)
TABLE = """
[models.{name}]
url = "{url}"
model = "m"
first_token_s = {deadline}
first_clause_s = {clause}
between_tokens_s = {between}
tool_call_s = {deadline}
"""
BOOK = {"type": "function", "name": "book", "description": "Books a table."}


CASES = [
    *((AT_FIRST, fault) for fault in FAULTS),
    (THEN, "dribbling"),
    *((LATER_ON, fault) for fault in LATER),
]


def configuration(folder: Path, deadlines: Deadlines, more: str = "", **urls: str) -> None:
    """Configure the models. deadlines: those of big; the others have time."""
    tables = more
    for name, url in urls.items():
        first, clause, between = deadlines if name == "big" else PATIENT
        tables += TABLE.format(name=name, url=url, deadline=first, clause=clause, between=between)
    (folder / "rejoinder.toml").write_text(HEADER + tables)


@contextmanager
def pair(
    folder: Path, llm: str, deadlines: Deadlines = PATIENT, more: str = ""
) -> Iterator[tuple[Server, Faulty, Faulty]]:
    """Run two chat servers, and a server of calls that asks one or both of them."""
    with ExitStack() as stack:
        big = stack.enter_context(faulty_server(unused_port()))
        small = stack.enter_context(faulty_server(unused_port()))
        tls = f"https://127.0.0.1:{small.port}/v1"
        nameless = "http://chat.invalid/v1"  # RFC 2606: no name ends so
        configuration(folder, deadlines, more, big=big.url, little=small.url, tls=tls, nameless=nameless)
        server = stack.enter_context(serving(folder, llm=llm))
        yield server, big, small


def turn(*talks: Talk) -> list[tuple[dict[str, Any], float]]:
    """Speak in all calls at once; return each response, and the seconds from its begin to its first audio."""
    for talk in talks:
        talk.speak()
    ended = []
    for talk in talks:
        talk.until("response.created")
        began = time.monotonic()
        while (event := talk.event())["type"] not in ("response.output_audio.delta", "response.done"):
            pass
        waited = time.monotonic() - began
        if event["type"] != "response.done":
            event = talk.until("response.done")
        ended.append((event["response"], waited))
    return ended


def ask(talk: Talk) -> dict[str, Any]:
    """Ask for a reply in text, which takes no time to play."""
    talk.send("response.create", response={"output_modalities": ["text"]})
    response: dict[str, Any] = talk.until("response.done")["response"]
    return response


def words_of(response: dict[str, Any]) -> str:
    parts = [part for item in response["output"] for part in item["content"]]
    return " ".join(part.get("transcript") or part.get("text", "") for part in parts).strip()


def history(faulty: Faulty) -> list[str]:
    """Return the assistant's words in the prompt that the server got last."""
    return [message["content"] for message in faulty.seen[-1] if message["role"] == "assistant"]


def traces(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Server, Faulty, Faulty]]:
    folder = tmp_path_factory.mktemp("two")
    with pair(folder, "big little", request.param) as (server, big, small):
        yield folder, server, big, small


@pytest.fixture(scope="module")
def one(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Faulty]]:
    with pair(tmp_path_factory.mktemp("one"), "big", request.param) as (server, big, _):
        yield server, big


def recover(talk: Talk, big: Faulty) -> None:
    """Heal the server, and wait until its model is asked again, and most of its requests are good."""
    big.fault, good = "", 0
    deadline = time.monotonic() + 120.0
    while good < 7:
        before = len(big.seen)
        response = ask(talk)
        is_probe = big.seen[-1][0]["role"] != "system"
        good += response["status"] == "completed" and len(big.seen) > before and not is_probe
        assert time.monotonic() < deadline, "it is not asked again"


def answer_of(talk: Talk) -> str:
    """Ask until the model is in time, which may take a busy machine more than once; return its words."""
    deadline = time.monotonic() + 60.0
    while (response := ask(talk))["status"] != "completed":
        assert time.monotonic() < deadline, "it is not answered again"
    return words_of(response)


@pytest.mark.parametrize(
    ("two", "fault"),
    CASES,
    indirect=["two"],
)
def test_a_second_model_answers_and_another_call_notices_nothing(
    two: tuple[Path, Server, Faulty, Faulty], fault: str
) -> None:
    folder, server, big, small = two
    with Talk(server) as talk, Talk(server) as neighbour:
        recover(talk, big)
        big.fault = fault
        for response, waited in turn(talk, neighbour):
            assert (response["status"], words_of(response)) == ("completed", WORDS)
            assert waited < (DEADLINE_S if fault in ("hung", "slow", "dribbling") else 0.0) + ALLOWED_S
        big.fault = "500"
        ask(talk)
        assert small.seen[-1][-1]["role"] == "assistant" and history(small)[-1] == WORDS, "nothing twice"
        assert not [event for event in talk.seen + neighbour.seen if event["type"] == "error"]
    server.wait_idle()
    models = [line["models"] for line in traces(folder)[-2:]]
    assert models == [["big", "little"] if fault in LATER else ["little"]] * 2
    if fault == "hung":
        deadline = time.monotonic() + PATIENT_S
        while big.gone < 2:  # the threads of its server notice it soon
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert big.gone == 2, "the losers' connections are closed"


@pytest.mark.parametrize(
    ("one", "fault"),
    CASES,
    indirect=["one"],
)
def test_without_a_second_model_an_apology_is_heard_and_the_call_stays_up(
    one: tuple[Server, Faulty], fault: str
) -> None:
    server, big = one
    with Talk(server) as talk, Talk(server) as neighbour:
        recover(talk, big)
        big.fault = fault
        ((response, waited),) = turn(talk)
        big.fault = ""
        assert response["status"] == "failed"
        cause = response["status_details"]["error"]
        assert cause["code"] in ("model_error", "model_timeout") and "language model" in cause["message"]
        assert [event["error"]["code"] for event in talk.seen if event["type"] == "error"] == [cause["code"]]
        heard = words_of(response)
        assert heard == (f"It is so. {LOST}" if fault in LATER else SORRY)
        assert waited < DEADLINE_S + ALLOWED_S
        assert answer_of(neighbour) == WORDS
        assert answer_of(talk) == WORDS, "the call goes on"
        assert heard in history(big), "the history says what was heard"
    server.wait_idle()


@pytest.mark.parametrize("two", [AT_FIRST], indirect=True)
def test_a_tool_call_that_never_ends_is_failed_over(two: tuple[Path, Server, Faulty, Faulty]) -> None:
    _, server, big, small = two
    with Talk(server) as talk, Talk(server) as neighbour:
        recover(talk, big)
        talk.send("session.update", session={"type": "realtime", "tools": [BOOK]})
        big.fault = "endless call"
        ((response, waited),) = turn(talk)
        assert (response["status"], words_of(response)) == ("completed", WORDS)
        assert DEADLINE_S < waited < DEADLINE_S + ALLOWED_S
        small.fault = "500"
        ((response, waited),) = turn(talk)
        small.fault = big.fault = ""
        assert (response["status"], words_of(response)) == ("failed", SORRY)
        assert answer_of(neighbour) == WORDS
    server.wait_idle()


def _connected(server: Server) -> Talk:
    deadline = time.monotonic() + 60.0
    while True:
        try:
            return Talk(server)
        except ConnectionClosed:  # it is still loading
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("away", ["tls", "nameless"])
def test_broken_tls_and_a_name_without_address_are_failed_over(tmp_path: Path, away: str) -> None:
    with pair(tmp_path, f"{away} big") as (server, big, _):
        with Talk(server) as talk:
            ((response, waited),) = turn(talk)
            assert words_of(response) == WORDS and waited < ALLOWED_S
            big.fault = "500"
            ((response, waited),) = turn(talk)
            assert (response["status"], words_of(response)) == ("failed", SORRY)
            assert waited < ALLOWED_S
        server.wait_idle()
    assert f"{away} does not answer" in server.log.read_text()


def test_calls_end_and_new_ones_are_refused_while_all_models_are_away(tmp_path: Path) -> None:
    more = f'give_up_after = 2\ngive_up_words = "{BYE}"\nrefuse_without_llm = true\n'
    with pair(tmp_path, "big little", more=more) as (server, big, small):
        big.fault = small.fault = "500"
        with Talk(server) as talk:
            assert server.get("/readyz") == {"status": "ready"}
            for _ in range(2):
                ((response, _),) = turn(talk)
                assert (response["status"], words_of(response)) == ("failed", SORRY)
            assert words_of(talk.until("response.done")["response"]) == BYE
            with pytest.raises(ConnectionClosed, match="2 replies in a row have failed"):
                talk.until("nothing more")
        with Talk(server) as talk:  # the third failure opens the breakers
            turn(talk)
        with pytest.raises(HTTPError) as unready:
            server.get("/readyz")
        assert json.load(unready.value)["language_model"] == NONE_ANSWERS
        with pytest.raises(InvalidStatus, match="503"):
            Talk(server)
        big.fault = ""
        deadline = time.monotonic() + PATIENT_S
        while not _is_ready(server):
            assert time.monotonic() < deadline, "a probe finds it out"
            time.sleep(0.1)
        with Talk(server) as talk:
            assert words_of(turn(talk)[0][0]) == WORDS
        server.wait_idle()


def _is_ready(server: Server) -> bool:
    try:
        return bool(server.get("/readyz") == {"status": "ready"})
    except HTTPError:
        return False


def test_a_server_starts_while_all_of_its_models_are_away(tmp_path: Path) -> None:
    ports = unused_port(), unused_port()
    big, small = (f"http://127.0.0.1:{port}/v1" for port in ports)
    configuration(tmp_path, PATIENT, big=big, little=small)
    with serving(tmp_path, wait=False, llm="big,little") as server:
        deadline = time.monotonic() + 60.0
        while "none of the language models answers" not in server.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with faulty_server(ports[1]), _connected(server) as talk:
            assert words_of(turn(talk)[0][0]) == WORDS
        server.wait_idle()
