"""An integrator's agent under simulated callers: which tools it called, with what, and what they did."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
from rejoinder.agent.app.host import BROKEN
from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.invariants import check, hang_ups
from rejoinder.agent.simulate.tool_use import ToolUse
from rejoinder.models.scripted import ScriptedLlm

BOOKS = ('@book {"people": 4, "day": "Friday"}', "Booked.")
"""A language model that books a table, and tells that it did."""


def restaurant(seconds: float = 0.5) -> Agent[None, None]:
    agent: Agent[None, None] = Agent("You take bookings.")

    @agent.tool
    async def book(call: Call, people: int, day: str) -> str:
        """Book a table."""
        await asyncio.sleep(seconds)
        if people > 8:
            raise ToolError("A table has 8 seats.")
        return f"Booked for {people} by {call.info.caller or 'a stranger'}."

    return agent


def asking(*replies: str, seconds: float = 0.5) -> Caller:
    llm = ScriptedLlm(replies or BOOKS)
    return Caller(llm, agent=restaurant(seconds)).says("a table for four on Friday").hears_out()


def test_call_knows_which_tools_were_called_with_what() -> None:
    call = asking().call()
    assert call.tools_called == [ToolUse("book", {"people": 4, "day": "Friday"})]
    use = call.called("book", people=4)
    assert (use.status, use.result, use.seconds) == (
        "done",
        "Booked for 4 by a stranger.",
        pytest.approx(0.5),
    )
    assert call.heard == ["Booked."]
    check(call)


def test_tool_that_was_not_called_is_named_with_those_that_were() -> None:
    call = asking().call()
    with pytest.raises(
        AssertionError, match=r"book\(people=5\) was not called; .*: book\(people=4, day='Fri"
    ):
        call.called("book", people=5)
    with pytest.raises(AssertionError, match=r"cancel\(\) was not called"):
        call.called("cancel")


@pytest.mark.parametrize(
    ("line", "status", "result"),
    [
        ('@book {"people": 9, "day": "Friday"}', "error", "A table has 8 seats."),
        ('@book {"people": "many"}', "error", "The arguments do not fit"),
        ("@book never", "error", "The arguments do not fit"),
        ("@cook {}", "error", "There is no tool cook"),
    ],
)
def test_what_went_wrong_is_recorded(line: str, status: str, result: str) -> None:
    (use,) = asking(line, "Sorry.").call().tools_called
    assert use.status == status and use.result.startswith(result)


@pytest.mark.parametrize("hook", ["on_call", "on_turn", "on_end", "context", "tool"])
def test_exception_of_the_agents_code_is_raised_after_the_call(hook: str) -> None:
    def caller() -> Caller:
        agent: Agent[None, None] = Agent(greeting="Hello.")

        async def broken(*given: object) -> None:
            raise ZeroDivisionError("division by zero")

        async def look() -> None:
            """Look."""
            raise ZeroDivisionError("division by zero")

        getattr(agent, hook)(look if hook == "tool" else broken)
        llm = ScriptedLlm(("@look", "Well.") if hook == "tool" else ("Hi.",))
        return Caller(llm, agent=agent).hears_out().says("hello").hears_out()

    with pytest.raises(ZeroDivisionError) as error:
        caller().call()
    (note,) = error.value.__notes__
    assert "raised it" in note and "s into the simulated call" in note
    if hook == "on_call":
        with pytest.raises(RefusedCall, match=BROKEN):
            caller().call(raises=False)
        return
    call = caller().call(raises=False)
    assert {type(failure.error) for failure in call.failures} == {ZeroDivisionError}
    assert call.heard[-1] == ("Well." if hook == "tool" else "Hi."), "a real call goes on, too"


def test_typed_words_are_a_turn_of_the_caller() -> None:
    agent = restaurant()
    turns: list[str] = []

    @agent.on_turn
    async def note(call: Call, words: str) -> None:
        turns.append(words)

    caller = Caller(ScriptedLlm(("Hi.", "Yes.")), agent=agent).says("hello").hears_out()
    caller.types("in writing").hears_out().call()
    assert turns == ["hello", "in writing"]


def test_interrupted_tool_is_recorded_as_cancelled() -> None:
    llm = ScriptedLlm((*BOOKS, "Which day?"))
    caller = Caller(llm, agent=restaurant(3.0)).says("a table").waits(1.0).says("no, wait please").hears_out()
    (use,) = caller.call().tools_called
    assert use.status == "cancelled" and 0.5 < use.seconds < 2.5


def test_hearing_out_waits_for_what_a_tool_returns() -> None:
    call = asking('One moment. @book {"people": 4, "day": "Friday"}', "Booked.", seconds=3.0).call()
    assert call.heard == ["One moment.", "Booked."]


def test_timeline_has_the_tools_in_it() -> None:
    lines = [line for line in asking().call().timeline() if " tool " in line]
    assert [line.partition(" ")[2] for line in lines] == [
        "tool book(people=4, day='Friday')",
        "tool book done after 0.50 s: Booked for 4 by a stranger.",
    ]


def test_function_in_a_thread_takes_no_virtual_time() -> None:
    """Otherwise minutes of the call would pass in the milliseconds that the thread takes."""
    agent: Agent[None, None] = Agent()

    @agent.tool
    def look_up(city: str) -> str:
        """Look something up."""
        time.sleep(0.05)
        return threading.current_thread().name

    calls = [
        Caller(ScriptedLlm(('@look_up {"city": "Rome"}', "Done.")), agent=agent)
        .says("look")
        .hears_out()
        .call()
        for _ in range(2)
    ]
    assert calls[0].called("look_up").seconds == 0.0
    assert "Main" not in calls[0].called("look_up").result
    assert calls[0].timeline()[:-1] == calls[1].timeline()[:-1]


def test_agent_that_waits_for_sockets_works_in_real_time() -> None:
    async def served() -> tuple[asyncio.Server, int]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.1)
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()[1]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[int]:
        server, port = await served()
        async with server:
            yield port

    agent: Agent[None, int] = Agent(lifespan=lifespan)

    @agent.tool
    async def echo(call: Call[None, int], word: str) -> str:
        """Return a word."""
        reader, writer = await asyncio.open_connection("127.0.0.1", call.resources)
        writer.write(f"{word}\n".encode())
        line = await reader.readline()
        writer.close()
        await asyncio.sleep(0.05)
        return line.decode().strip()

    llm = ScriptedLlm(('@echo {"word": "hello"}', "Done."))
    call = Caller(llm, agent=agent, real_time=True).says("say hello").hears_out().call()
    use = call.called("echo", word="hello")
    assert use.result == "hello" and 0.14 < use.seconds < 20.0


def test_hook_gets_who_calls() -> None:
    info = CallInfo(wire="Twilio", caller="+3221234567")
    call = Caller(ScriptedLlm(BOOKS), agent=restaurant(), info=info).says("a table").hears_out().call()
    assert call.called("book").result == "Booked for 4 by +3221234567."


def test_hanging_up_in_any_step_leaves_nothing_behind() -> None:
    assert sum(1 for _ in hang_ups(asking, every=29)) > 8


def test_database_of_the_lifespan_is_open(tmp_path: object) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[sqlite3.Connection]:
        # Each statement is a transaction of its own: the tools run in two threads at once.
        db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        db.execute("CREATE TABLE word (text TEXT)")
        yield db
        db.close()

    agent: Agent[None, sqlite3.Connection] = Agent(lifespan=lifespan)

    @agent.tool
    def note(call: Call[None, sqlite3.Connection], word: str) -> str:
        """Note a word."""
        call.resources.execute("INSERT INTO word VALUES (?)", [word])
        return word

    llm = ScriptedLlm(('@note {"word": "a"} @note {"word": "b"}', "Noted."))
    call = Caller(llm, agent=agent).says("note two words").hears_out().call()
    assert sorted(use.result for use in call.tools_called) == ["a", "b"]
