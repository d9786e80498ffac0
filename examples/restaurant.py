"""An agent that takes bookings for a restaurant, with SQLite behind it.

    rejoinder serve examples/restaurant.py

A caller on any wire can ask for a table. A booking is kept: who interrupts it or hangs up still has it.
Bookings last as long as the program; RESTAURANT_DB=bookings.sqlite keeps them in a file.
"""

from __future__ import annotations

import os
import sqlite3
from datetime import datetime

from rejoinder import Agent, Call, ToolError

TABLES = 4
LONGEST = 8

agent = Agent(
    "You take bookings for Mario's. Ask for the day, the time, the number of people and the name. "
    "Today is {date}, tomorrow is {tomorrow}, and it is {time}.",
    greeting="Mario's, how can I help?",
)

# Tools run in threads: each statement is a transaction of its own.
path = os.environ.get("RESTAURANT_DB", ":memory:")
db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS booking (at TEXT, people INT, name TEXT, phone TEXT)")


@agent.tool
def free_tables(at: datetime) -> int:
    """Return how many tables are free at a day and time."""
    taken = db.execute("SELECT count(*) FROM booking WHERE at = ?", [at.isoformat()])
    return TABLES - int(taken.fetchone()[0])


@agent.tool(keep_on_interrupt=True)
def book(call: Call, people: int, at: datetime, name: str) -> str:
    """Book a table. Say the day, the time and the number of people back to the caller afterwards."""
    if not 1 <= people <= LONGEST:
        raise ToolError(f"A table has at most {LONGEST} seats: ask whether they want two tables.")
    day = at.isoformat()
    booked = db.execute(
        "INSERT INTO booking SELECT ?, ?, ?, ? WHERE (SELECT count(*) FROM booking WHERE at = ?) < ?",
        [day, people, name, call.info.caller, day, TABLES],
    )
    if not booked.rowcount:
        raise ToolError("There is no table at that time: offer another one.")
    return f"Booked for {people} on {at:%A, %d %B at %H:%M}."
