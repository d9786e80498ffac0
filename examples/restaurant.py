"""An agent that takes bookings for a restaurant, with SQLite behind it.

    rejoinder serve examples/restaurant.py

A caller on any wire can ask for a table. A booking is kept: who interrupts it or hangs up still has it.
Bookings last as long as the program; RESTAURANT_DB=bookings.sqlite keeps them in a file.
RESTAURANT_BLOCKED="+3220000000" refuses calls from these numbers.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime

from rejoinder import Agent, Call, ToolError

TABLES = 4
LONGEST = 8
BLOCKED = os.environ.get("RESTAURANT_BLOCKED", "").split()

log = logging.getLogger("restaurant")


@dataclass
class Guest:
    """What one caller has booked."""

    booked: list[str] = field(default_factory=list)


@asynccontextmanager
async def database() -> AsyncIterator[sqlite3.Connection]:
    path = os.environ.get("RESTAURANT_DB", ":memory:")
    # Tools run in threads: each statement is a transaction of its own.
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS booking (at TEXT, people INT, name TEXT, phone TEXT)")
        yield db


Caller = Call[Guest, sqlite3.Connection]

agent = Agent[Guest, sqlite3.Connection](
    "You take bookings for Mario's. Ask for the day, the time, the number of people and the name. "
    "Today is {date}, tomorrow is {tomorrow}, and it is {time}.",
    greeting="Mario's, how can I help?",
    state=Guest,
    lifespan=database,
)


@agent.tool
def free_tables(call: Caller, at: datetime) -> int:
    """Return how many tables are free at a day and time."""
    taken = call.resources.execute("SELECT count(*) FROM booking WHERE at = ?", [at.isoformat()])
    return TABLES - int(taken.fetchone()[0])


@agent.tool(keep_on_interrupt=True)
def book(call: Caller, people: int, at: datetime, name: str) -> str:
    """Book a table. Say the day, the time and the number of people back to the caller afterwards."""
    if not 1 <= people <= LONGEST:
        raise ToolError(f"A table has at most {LONGEST} seats: ask whether they want two tables.")
    day = at.isoformat()
    booked = call.resources.execute(
        "INSERT INTO booking SELECT ?, ?, ?, ? WHERE (SELECT count(*) FROM booking WHERE at = ?) < ?",
        [day, people, name, call.info.caller, day, TABLES],
    )
    if not booked.rowcount:
        raise ToolError("There is no table at that time: offer another one.")
    call.state.booked.append(f"{people} on {at:%A, %d %B at %H:%M}")
    return f"Booked for {call.state.booked[-1]}."


@agent.tool
async def leave(call: Caller) -> None:
    """End the call, once the caller has said goodbye."""
    await call.hang_up(say="Thank you, goodbye!")


@agent.on_call
async def welcome(call: Caller) -> None:
    if call.info.caller in BLOCKED:
        call.refuse("this number is blocked")


@agent.on_end
async def note(call: Caller) -> None:
    log.info("%s booked %s in %.0f s", call.info.caller or "unknown", call.state.booked, call.seconds)
