"""Facts about a caller are kept between calls where an agent has a memory, bounded, and can be deleted."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.memory import keeper, sqlite
from rejoinder.agent.app.memory.caller_facts import FACT_CHARACTERS, NoMemory
from rejoinder.agent.app.memory.keeper import READ_S
from rejoinder.agent.app.memory.memory import Memory, identity
from rejoinder.agent.app.memory.sqlite import FACTS_PER_CALLER, SqliteMemory
from rejoinder.agent.simulate.caller import Caller
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Options, ReplyRequest

ADA = "+15550100"


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads take longer than a caller would wait."""
    monkeypatch.setattr(keeper, "READ_S", 20.0)
    monkeypatch.setattr(sqlite, "BUSY_S", 20.0)


@pytest.fixture
def memory(tmp_path: Path) -> SqliteMemory:
    return SqliteMemory(tmp_path / "memory.sqlite", callers=3)


def calls(memory: Memory | None, *what: tuple[str, Any]) -> list[str]:
    """Hold calls one after the other: a caller, and what is done in the call. Return their instructions."""
    agent = Agent[None, None]("Be kind.", memory=memory)
    instructions = []

    async def main() -> None:
        host = AgentHost(agent)
        for caller, act in what:
            async with host.running():
                answered: AgentCall = await host.answer(CallInfo(caller=caller), Options())
                instructions.append(answered.options().instructions)
                await asyncio.to_thread(act, answered.call) if act else None
                assert answered.options().instructions in (instructions[-1], "Be kind.")
                answered.end("over", 1.0)

    asyncio.run(main())
    return instructions


def test_next_call_has_what_was_remembered(memory: SqliteMemory) -> None:
    def tell(call: Any) -> None:
        call.remember("name", "Ada  Lovelace")
        call.remember("table", "by the\nwindow")
        call.remember("name", "Ada King")
        assert dict(call.facts) == {"name": "Ada King", "table": "by the window"}

    first, second, other = calls(memory, (ADA, tell), (ADA, None), ("+15550199", None))
    assert first == other == "Be kind."
    assert second == (
        "Be kind.\n\nYou know this from earlier calls of this caller:\n"
        "- table: by the window\n- name: Ada King"
    )


def test_forgotten_caller_is_unknown_at_once_and_later(memory: SqliteMemory) -> None:
    memory.remember(ADA, "name", "Ada")
    memory.remember("+15550199", "name", "Bob")
    first, second, other = calls(memory, (ADA, lambda call: call.forget()), (ADA, None), ("+15550199", None))
    assert "Ada" in first and second == "Be kind." and "Bob" in other


def test_deletion_leaves_nothing_in_the_file(memory: SqliteMemory, tmp_path: Path) -> None:
    memory.remember(ADA, "name", "Ada Lovelace")
    assert b"Lovelace" in (tmp_path / "memory.sqlite").read_bytes()
    memory.forget(ADA)
    assert b"Lovelace" not in (tmp_path / "memory.sqlite").read_bytes() and memory.facts(ADA) == {}


def test_memory_is_off_by_default() -> None:
    def tell(call: Any) -> None:
        for change in (lambda: call.remember("name", "Ada"), call.forget):
            with pytest.raises(NoMemory, match="Agent\\(memory="):
                change()

    assert calls(None, (ADA, tell), (ADA, None)) == ["Be kind."] * 2


@pytest.mark.parametrize(
    "caller", ["", "anonymous", "+266696687", "Restricted", "sip:anonymous@anonymous.invalid"]
)
def test_callers_without_a_number_share_nothing(memory: SqliteMemory, caller: str) -> None:
    def tell(call: Any) -> None:
        call.remember("name", "Ada")
        assert call.facts["name"] == "Ada", "it lasts for this call"

    assert calls(memory, (caller, tell), (caller, None)) == ["Be kind."] * 2
    assert memory.facts(caller) == {}


def test_identity_of_a_number_is_the_number() -> None:
    assert identity(" +15550100 ") == "+15550100" and identity("sip:ada@example.com") == "sip:ada@example.com"


def test_memory_is_bounded(memory: SqliteMemory) -> None:
    for number in range(FACTS_PER_CALLER + 5):
        memory.remember(ADA, f"fact {number}", "x")
    facts = list(memory.facts(ADA))
    assert len(facts) == FACTS_PER_CALLER and facts[0] == "fact 5"
    for caller in ("b", "c", "d"):
        memory.remember(caller, "name", caller)
    assert memory.facts(ADA) == {}, "the one that was not changed for longest goes"
    assert [len(memory.facts(caller)) for caller in "bcd"] == [1, 1, 1]


def test_wrong_facts_are_refused(memory: SqliteMemory) -> None:
    def tell(call: Any) -> None:
        for key, value in (("", "x"), ("name", " "), ("k" * 65, "x"), ("name", "x" * (FACT_CHARACTERS + 1))):
            with pytest.raises(ValueError, match="a fact needs 1 to"):
                call.remember(key, value)

    calls(memory, (ADA, tell))
    assert memory.facts(ADA) == {}


class Broken:
    """A memory that fails, or takes for ever."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked = threading.Event()

    def facts(self, caller: str) -> Mapping[str, str]:
        time.sleep(self.seconds)
        raise sqlite3.OperationalError("disk I/O error")

    def remember(self, caller: str, key: str, value: str) -> None:
        self.asked.set()
        raise sqlite3.OperationalError("disk I/O error")

    def forget(self, caller: str) -> None:
        raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("seconds", [0.0, READ_S + 0.3])
def test_broken_memory_does_not_cost_the_call(
    seconds: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seconds:
        monkeypatch.setattr(keeper, "READ_S", READ_S)
    broken = Broken(seconds)
    with caplog.at_level(logging.ERROR):
        assert calls(broken, (ADA, lambda call: call.remember("name", "Ada"))) == ["Be kind."]
    assert broken.asked.is_set() and "memory.remember failed" in caplog.text
    assert "memory.facts failed" in caplog.text
    assert ("did not answer within" in caplog.text) == bool(seconds)


def test_two_processes_may_write(memory: SqliteMemory, tmp_path: Path) -> None:
    other = SqliteMemory(tmp_path / "memory.sqlite")

    def write(one: SqliteMemory, name: str) -> None:
        for number in range(20):
            one.remember(ADA, f"{name} {number}", "x")

    threads = [threading.Thread(target=write, args=pair) for pair in ((memory, "a"), (other, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory.facts(ADA)) == 40


def test_reply_with_instructions_of_its_own_knows_the_caller(memory: SqliteMemory) -> None:
    memory.remember(ADA, "name", "Ada")
    host = AgentHost(Agent[None, None]("Be kind.", memory=memory))
    answered = asyncio.run(host.answer(CallInfo(caller=ADA), Options()))
    request = answered.request(ReplyRequest(instructions="Shout."))
    assert request is not None and request.tools is None
    assert request.instructions is not None and request.instructions.startswith("Shout.\n\nYou know this")
    assert answered.request(ReplyRequest()) == ReplyRequest() and answered.request(None) is None


# --- in a simulated call ----------------------------------------------------------------------------------


def caller(memory: Memory) -> Caller:
    """Return a caller of an agent that remembers each turn."""
    agent = Agent[None, None]("Be kind.", memory=memory)

    @agent.on_turn
    def note(call: Any, words: str) -> None:
        call.remember("said", words)

    info = CallInfo(caller=ADA)
    return Caller(ScriptedLlm(["Hello."]), agent=agent, info=info).says("hello").hears_out()


def test_simulated_calls_share_a_memory(memory: SqliteMemory) -> None:
    """Virtual time stands still while its thread works: the first call finds no time to be late in."""
    caller(memory).call()
    again = caller(memory).call()
    assert "- said: hello" in again.prompts[0][0]["content"]


def test_memory_that_fails_fails_a_simulated_call() -> None:
    broken = Broken()
    failures = caller(broken).call(raises=False).failures
    assert [(one.what, str(one.error)) for one in failures] == [
        ("memory.facts", "disk I/O error"),
        ("memory.remember", "disk I/O error"),
    ]
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        caller(broken).call()
