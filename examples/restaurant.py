"""An agent that takes bookings for a restaurant, with SQLite behind it.

    rejoinder serve examples/restaurant.py --llm openai:http://localhost:11434/v1#qwen3

A caller on any wire can ask for a table. A booking is durable: who interrupts it or hangs up still has it.
Bookings last as long as the program; RESTAURANT_DB=bookings.sqlite keeps them in a file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from rejoinder import Agent, Call, ToolError

TABLES = 4
LONGEST = 8


@dataclass
class Guest:
    """What this program knows of one call."""

    bookings: int = 0


@asynccontextmanager
async def database() -> AsyncIterator[sqlite3.Connection]:
    """Open the database once, for all calls."""
    path = os.environ.get("RESTAURANT_DB", ":memory:")
    # Tools run in threads: each statement is a transaction of its own.
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS booking (at TEXT, people INT, name TEXT, phone TEXT)")
    yield connection
    connection.close()


agent = Agent[Guest, sqlite3.Connection](
    "You take bookings for Mario's. Ask for the day, the time, the number of people and the name.",
    greeting="Mario's, how can I help?",
    state=Guest,
    lifespan=database,
)


@agent.tool
def free_tables(call: Call[Guest, sqlite3.Connection], at: datetime) -> int:
    """Return how many tables are free at a day and time."""
    taken = call.resources.execute("SELECT count(*) FROM booking WHERE at = ?", [at.isoformat()])
    return TABLES - int(taken.fetchone()[0])


@agent.tool(durable=True)
def book(call: Call[Guest, sqlite3.Connection], people: int, at: datetime, name: str) -> str:
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
    call.state.bookings += 1
    return f"Booked for {people} on {at:%A, %d %B at %H:%M}."


@agent.on_end
def note(call: Call[Guest, sqlite3.Connection]) -> None:
    """Print one line per call."""
    print(f"{call.info.wire}: {call.seconds:.0f} s, {call.state.bookings} bookings, {call.ended}", flush=True)
