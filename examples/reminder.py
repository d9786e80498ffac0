"""An agent that reminds people of an appointment. Name and date are parameters of the call, or of its URL.

rejoinder serve examples/reminder.py --llm openai:http://localhost:11434/v1#qwen3
rejoinder call +4930123 --via twilio --detect-machine --parameter name=Anna --parameter at=2026-11-27T10:00
"""

import os
import sqlite3
from dataclasses import dataclass
from datetime import datetime

from rejoinder import Agent, Call, CallAnswer, ToolError


@dataclass
class Appointment:
    """What one call is about, and what came of it."""

    name: str = ""
    at: datetime = datetime.min
    outcome: str = "no answer"

    @property
    def when(self) -> str:
        return f"{self.at:%A, %d %B} at {self.at:%H:%M}"


agent = Agent[Appointment]("Record the answer, say goodbye. Leave machines a message. ", state=Appointment)


@agent.on_call
def prepare(call: Call[Appointment]) -> None:
    given = {**call.info.query, **call.info.metadata}
    try:
        call.state = Appointment(given["name"], datetime.fromisoformat(given["at"]))
    except (KeyError, ValueError):
        call.refuse("the call needs the parameters name and at, such as name=Anna and at=2026-11-27T10:00")
    call.greeting = f"Doctor Weber's practice. {call.state.name}, do you come on {call.state.when}?"
    call.instructions += f"You ask {call.state.name} whether they come on {call.state.when}."


@agent.tool(durable=True)
def confirm(call: Call[Appointment], comes: bool) -> str:
    """Record whether the person comes."""
    call.state.outcome = "confirmed" if comes else "declined"
    return "Recorded. Thank them and say goodbye."


@agent.tool(durable=True)
def move(call: Call[Appointment], at: datetime) -> str:
    """Move the appointment to a time that suits the person."""
    if not 8 <= at.hour < 17:
        raise ToolError("The practice is open from 8 to 17 o'clock: offer another time.")
    call.state.at, call.state.outcome = at, "moved"
    return f"It is now on {call.state.when}. Say it back."


@agent.tool(durable=True, timeout_s=90.0)
async def leave_message(call: Call[Appointment]) -> None:
    """Leave a message on an answering machine, after its beep."""
    call.state.outcome = "message"
    await call.leave_message(f"Doctor Weber expects {call.state.name} on {call.state.when}. Goodbye.")


@agent.on_answered_by
async def act(call: Call[Appointment], answer: CallAnswer) -> None:
    if answer.by == "voicemail":
        await leave_message(call)
    elif answer.by == "unavailable":
        call.hang_up("nobody can be reached")


@agent.on_end
def note(call: Call[Appointment]) -> None:
    with sqlite3.connect(os.environ.get("REMINDER_DB", "reminders.sqlite")) as db:
        db.execute("CREATE TABLE IF NOT EXISTS reminder (name TEXT, at TEXT, outcome TEXT)")
        row = [call.state.name, call.state.at.isoformat(), call.state.outcome]
        db.execute("INSERT INTO reminder VALUES (?, ?, ?)", row)
    db.close()
