"""The log's lines: JSON with the call's id from the socket to the engine, no secrets, no words of callers."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.serving import PATIENCE, Server, Talk, serving
from websockets.sync.client import connect

from rejoinder.agent.log_format import HIDDEN_FIELD, SECRET_FIELD, formatter
from rejoinder.agent.logs import SafeRecord, of_libraries, safe
from rejoinder.agent.settings.log import AUTO_FORM, JSON_FORM, PRETTY_FORM
from rejoinder.pipeline.engines import call_id
from rejoinder.pipeline.engines.engine import Engine

KEY = "rj_the-key_of-these~tests"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


@contextmanager
def logging_to(form: str, terminal: bool = False, secrets: tuple[str, ...] = ()) -> Iterator[io.StringIO]:
    """Write the records of the logger "a.test" to what is yielded, as the server does."""
    factory, said, logger = logging.getLogRecordFactory(), io.StringIO(), logging.getLogger("a.test")
    handler = logging.StreamHandler(said)
    handler.setFormatter(formatter(form, terminal, lambda text: safe(text, secrets)))
    logger.addHandler(handler)
    logger.propagate, level = False, logger.level
    logger.setLevel(logging.DEBUG)
    logging.setLogRecordFactory(SafeRecord)
    try:
        yield said
    finally:
        logging.setLogRecordFactory(factory)
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(level)


log = logging.getLogger("a.test")
keys = st.text(LETTERS, min_size=12, max_size=40).filter(lambda key: "abc" not in key)
places = st.sampled_from(
    [
        "Authorization: Bearer {}",
        "{{'authorization': 'Bearer {}', 'host': 'x'}}",
        "GET /v1/realtime?api_key={}&x=1 HTTP/1.1",
        "https://host/path?a=b&token={}",
        "the key rj_{} was shown",
        "sk-proj-{}",
        "ek_{}.",
        "openai-insecure-api-key.{}, realtime",
        "x-twilio-signature: {}",
        "Cookie: session={}",
    ]
)
fields = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(), st.floats(), st.none(), st.just("SECRET")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


def filled(value: Any, text: str) -> Any:
    """Return a field with a text in all places of "SECRET"."""
    if isinstance(value, dict):
        return {key: filled(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, text) for each in value]
    return text if value == "SECRET" else value


@given(keys, places, fields, st.sampled_from([PRETTY_FORM, JSON_FORM]))
def test_no_line_has_a_secret_wherever_it_stands(key: str, place: str, field: Any, form: str) -> None:
    """In the message, its arguments, nested fields, names of fields, and tracebacks; and JSON stays JSON."""
    text = place.format(key)
    with logging_to(form) as said:
        log.warning("it has %s", text, extra={"field": filled(field, text), "more": {text: [text]}})
        log.warning(text, extra={"password": key, "x": {"Api-Key": [key], "secret": {"deep": key}}})
        try:
            raise ValueError(text)
        except ValueError:
            log.exception("it failed")
    written = said.getvalue()
    assert key not in written
    if form == JSON_FORM:
        assert [json.loads(line)["level"] for line in written.split("\n")[:-1]] == [
            "warning",
            "warning",
            "error",
        ]


@given(st.text(max_size=30), fields)
def test_json_has_one_line_for_each_record_whatever_is_in_it(text: str, field: Any) -> None:
    with logging_to(JSON_FORM) as said:
        log.warning("%s", text, extra={"field": field})
    (line,) = said.getvalue().removesuffix("\n").split("\n")
    parsed = json.loads(line)
    assert parsed["event"] == safe(text) and parsed["logger"] == "a.test" and "field" in parsed


def test_form_follows_the_setting_and_the_terminal() -> None:
    for form, terminal, begins in (
        (AUTO_FORM, True, "\x1b[33m20"),
        (AUTO_FORM, False, '{"timestamp": "20'),
        (JSON_FORM, True, '{"timestamp": "20'),
        (PRETTY_FORM, False, "20"),
    ):
        with logging_to(form, terminal) as said:
            log.warning("hello")
        assert said.getvalue().startswith(begins), form


def test_fields_with_secret_names_are_hidden() -> None:
    assert all(map(SECRET_FIELD.search, ("Authorization", "x-api-key", "apikey", "Set-Cookie", "auth_token")))
    assert not any(map(SECRET_FIELD.search, ("key_hash", "address", "reason", "call")))


def test_number_with_a_secret_name_is_shown() -> None:
    with logging_to(JSON_FORM) as said:
        log.warning("done", extra={"tokens": 42, "token": "abcdefgh", "secrets": [1234]})
    line = json.loads(said.getvalue())
    assert (line["tokens"], line["token"], line["secrets"]) == (42, HIDDEN_FIELD, HIDDEN_FIELD)


@pytest.mark.parametrize("form", [PRETTY_FORM, JSON_FORM])
def test_extra_does_not_replace_what_a_line_says_of_itself(form: str) -> None:
    theirs = {"event": "theirs", "timestamp": "never", "level": "loud", "logger": "other", "exception": 7}
    with logging_to(form) as said:
        log.warning("it is %s", "ours", extra={**theirs, "call": "sess_9", "_record": 1})
    if form == PRETTY_FORM:
        assert " a.test WARNING it is ours (call sess_9)" in said.getvalue()
        return
    line = json.loads(said.getvalue())
    assert (line["event"], line["level"], line["logger"]) == ("it is ours", "warning", "a.test")
    assert line["timestamp"].startswith("20") and line["call"] == "sess_9"


def test_libraries_log_contents_only_where_words_are_allowed() -> None:
    assert of_libraries("debug", words=False) == "info" and of_libraries("debug", words=True) == "debug"
    assert of_libraries("info", words=True) == of_libraries("info", words=False) == "warning"


def test_line_of_an_engine_names_the_calls_of_its_batch() -> None:
    """Each job carries the id of its caller's task into the engine's thread."""

    def step(items: Sequence[str]) -> list[str]:
        log.info("a step of %d", len(items))
        return [call_id.current.get()] * len(items)

    async def call(engine: Engine[str, str], id_: str) -> str:
        call_id.current.set(id_)
        return await engine.run("x")

    async def main() -> list[str]:
        engine = Engine("test", step, max_batch=8)
        try:
            first = await call(engine, "one")
            both = await asyncio.gather(call(engine, "two"), call(engine, "three"), call(engine, "two"))
            call_id.current.set("")
            return [first, *both, await engine.run("x")]
        finally:
            engine.close()

    with logging_to(JSON_FORM) as said:
        answers = asyncio.run(main())
    assert answers[0] == "one" and answers[-1] == "" and answers[1].split()[0] == "two"
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert {word for line in lines for word in line.get("call", "").split()} == {"one", "two", "three"}
    assert "call" not in lines[-1], "a job of no call has no id, and not that of the step before"


AGENT = """
import logging
from rejoinder import Agent
from rejoinder.pipeline.engines.engine import Engine

log, engine = logging.getLogger("mine"), None
agent = Agent()

def step(items):
    log.warning("a step for %s", items)
    return items

@agent.on_call
async def answer(call):
    global engine
    engine = engine or Engine("mine", step)
    await engine.run("on_call")

@agent.on_turn
async def turned(call, words):
    await engine.run("on_turn")
"""


def lines(server: Server) -> list[dict[str, Any]]:
    """Return the lines of the log in JSON; what commands print is left out."""
    return [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]


@pytest.mark.server
def test_one_id_goes_from_the_socket_to_the_engine_and_no_words_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At debug, where libraries would log each message."""
    monkeypatch.setenv("REJOINDER_LOG_FORMAT", "auto")
    monkeypatch.setenv("REJOINDER_LOG_LEVEL", "debug")
    (tmp_path / "my_agent.py").write_text(AGENT)
    with serving(tmp_path, agent=str(tmp_path / "my_agent.py")) as server:
        with Talk(server) as talk:
            id_ = talk.seen[0]["session"]["id"]
            assert talk.turn()["status"] == "completed"
        with connect(f"ws://127.0.0.1:{server.port}/v1/pcm", proxy=None, open_timeout=PATIENCE) as pcm:
            other = json.loads(pcm.recv(PATIENCE))["id"]
        server.wait_idle()
        written = [json.dumps(line) for line in lines(server) if " ready in " not in line["event"]]
    plain = [line for line in server.log.read_text().splitlines() if not line.startswith("{")]
    assert plain == [f"Talk to it at http://127.0.0.1:{server.port}/"], "the only line on standard output"
    assert "scripted:vad ready in 0.0 s" in [line["event"] for line in lines(server)]
    assert not [line for line in written if "weather" in line or "of the answer" in line]
    steps = [(line["event"], line["call"]) for line in lines(server) if line["logger"] == "mine"]
    first, second = "a step for ['on_call']", "a step for ['on_turn']"
    assert steps == [(first, id_), (second, id_), (first, other)]
    (ended,) = [line for line in lines(server) if " ended: " in line["event"] and line["call"] == id_]
    assert ended["turns"] == 1 and ended["wire"] == "realtime" and ended["address"] == "127.0.0.1"
    assert ended["reason"] == "the client has left"


@pytest.mark.server
def test_words_are_logged_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_LOG_WORDS", "true")
    monkeypatch.setenv("REJOINDER_LOG_LEVEL", "debug")
    with serving(tmp_path) as server:
        with Talk(server) as talk:
            talk.turn()
        server.wait_idle()
        written = server.log.read_text().splitlines()
        assert [line for line in written if " DEBUG " in line and "of the answer" in line]


FORGED = "x\n2026-11-23 10:00:00,000 rejoinder INFO all is well\r\x1b[2J\x9b31m\u2028\u202egnirts\x00"


@given(st.text() | st.just(FORGED))
def test_text_of_a_client_makes_no_line_and_no_command_for_a_terminal(quoted: str) -> None:
    with logging_to(PRETTY_FORM) as said:
        try:
            raise ValueError(quoted)
        except ValueError:
            log.exception("a server said: %s", quoted)
    first, *more = said.getvalue().removesuffix("\n").split("\n")
    assert " a.test ERROR a server said: " in first
    assert all(line.startswith("    ") for line in more)
    assert all(each.isprintable() for line in (first, *more) for each in line.replace("\t", ""))
    with logging_to(JSON_FORM) as said:
        log.error("a server said: %s", quoted, extra={"label": quoted})
    (line,) = said.getvalue().splitlines()
    assert json.loads(line)["label"] == safe(quoted)
    assert not [each for each in line if each < " " or "\x7f" <= each <= "\x9f" or each in "\u2028\u202e"]
