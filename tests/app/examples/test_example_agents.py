"""The agents of examples/ in virtual time: what they do with what a caller says."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.paths import EXAMPLES
from support.servers.clerk import AT, WANTED

from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.models.scripted import ScriptedLlm

ANNA = CallInfo(wire="simulation", query={"name": "Anna", "at": "2026-11-27T10:00"})
AGENTS = ("restaurant", "help_desk", "reminder", "knowledge")


def rows(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(query).fetchall()


def agent_of(example: str) -> Any:
    return load_agent(str(EXAMPLES / f"{example}.py"), again=True)


@pytest.mark.parametrize("name", AGENTS)
def test_agent_is_short_and_listed(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 80
    assert f"{name}.py" in (EXAMPLES / "README.md").read_text()


def test_restaurant_books_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESTAURANT_DB", str(tmp_path / "db"))
    llm = ScriptedLlm((f'@book {{"people": 4, "at": "{AT}", "name": "Anna"}}', "Booked."))
    call = Caller(llm, agent=agent_of("restaurant")).hears_out().says(WANTED).hears_out().call()
    call.called("book", people=4, name="Anna")
    assert call.heard == ["Mario's, how can I help?", "Booked."]
    assert rows(tmp_path / "db", "SELECT people, name FROM booking") == [(4, "Anna")]


@pytest.mark.server
def test_help_desk_finds_opens_and_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tickets are in a real process; so this call takes real time."""
    monkeypatch.setenv("TICKETS_DB", str(tmp_path / "tickets"))
    llm = ScriptedLlm(
        (
            "Switch it off and on again.",
            '@tickets_open_ticket {"problem": "printer, red lamp"}',
            "Ticket one is open.",
            "One moment. @order_desk",
            "Unused: the order desk greets.",
            '@price {"article": "a headset"}',
            "It is sixty euros.",
        )
    )
    caller = Caller(llm, agent=agent_of("help_desk"), real_time=True).hears_out()
    caller.says("my printer prints nothing").hears_out().says("still red").hears_out()
    caller.says("I want to buy a headset").hears_out().says("a headset please").hears_out()
    call = caller.call()
    asked = next(prompt for prompt in call.prompts if "printer prints nothing" in prompt[-1]["content"])
    assert "Wait for the green lamp" in asked[-1]["content"], "the article is in front of the words"
    assert rows(tmp_path / "tickets", "SELECT number, problem, state FROM ticket") == [
        (1, "printer, red lamp", "open")
    ]
    assert call.called("tickets_open_ticket").result.startswith("Ticket 1 is open.")
    assert call.called("price", article="a headset").result == "headset: 60 euros"
    assert call.talk.call.agent.name == "orders"
    assert "This is the order desk. What do you need?" in call.heard
    assert "articles" not in sys.modules


def reminded(*replies: str, says: str) -> Call:
    llm = ScriptedLlm(replies)
    return Caller(llm, agent=agent_of("reminder"), info=ANNA).hears_out().says(says).hears_out().call()


@pytest.mark.parametrize(
    ("line", "says", "row"),
    [
        ('@confirm {"comes": true}', "yes, I do", ("Anna", "2026-11-27T10:00:00", "confirmed")),
        ('@confirm {"comes": false}', "no, I cannot", ("Anna", "2026-11-27T10:00:00", "declined")),
        (
            '@move {"at": "2026-11-28T15:00"}',
            "on Saturday at three",
            ("Anna", "2026-11-28T15:00:00", "moved"),
        ),
        ("Sorry?", "what is this", ("Anna", "2026-11-27T10:00:00", "no answer")),
    ],
)
def test_reminder_records_the_answer(
    line: str, says: str, row: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMINDER_DB", str(tmp_path / "db"))
    call = reminded(line, "Thank you, goodbye.", says=says)
    assert call.heard[0] == "Doctor Weber's practice. Anna, do you come on Friday, 27 November at 10:00?"
    assert rows(tmp_path / "db", "SELECT * FROM reminder") == [row]


def detected(says: str) -> Call:
    """Return a call of ``rejoinder call --detect-machine``, of one who speaks first."""
    info = replace(ANNA, query={**ANNA.query, "amd": "true"})
    caller = Caller(ScriptedLlm(("Thank you.",)), agent=agent_of("reminder"), info=info)
    return caller.says(says).waits(30.0).call()


@pytest.mark.parametrize(
    ("says", "heard", "outcome", "ended"),
    [
        ("hello?", "Doctor Weber's practice. Anna, do you come", "no answer", "the caller has left"),
        (
            "you have reached Anna please leave a message after the tone",
            "Doctor Weber expects Anna on",
            "message",
            "left a message",
        ),
        ("the number you have dialled is not in service", "", "no answer", "nobody can be reached"),
    ],
)
def test_reminder_finds_out_who_answers(
    says: str, heard: str, outcome: str, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMINDER_DB", str(tmp_path / "db"))
    call = detected(says)
    assert len(call.heard) == bool(heard) and "".join(call.heard).startswith(heard)
    assert call.talk.call.ended == ended
    assert rows(tmp_path / "db", "SELECT outcome FROM reminder") == [(outcome,)]


def test_reminder_leaves_a_message_that_a_noise_does_not_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMINDER_DB", str(tmp_path / "db"))
    llm = ScriptedLlm(("@leave_message", "Nothing more."))
    caller = Caller(llm, agent=agent_of("reminder"), info=ANNA).hears_out()
    caller.says("please leave a message after the tone").waits(0.4).says("goodbye").hears(1.0).coughs(
        0.8
    ).waits(30.0)
    call = caller.call()
    assert call.heard[-1] == "Doctor Weber expects Anna on Friday, 27 November at 10:00. Goodbye."
    assert not call.finished and call.talk.call.ended == "left a message"
    assert rows(tmp_path / "db", "SELECT outcome FROM reminder") == [("message",)]


def test_reminder_offers_another_time_outside_its_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMINDER_DB", str(tmp_path / "db"))
    call = reminded('@move {"at": "2026-11-28T19:00"}', "We close at five.", says="at seven")
    assert call.called("move").status == "error" and call.heard[-1] == "We close at five."


def test_reminder_without_a_date_is_refused() -> None:
    with pytest.raises(RefusedCall, match="needs the parameters name and at"):
        Caller(ScriptedLlm(), agent=agent_of("reminder")).says("hello").call()
