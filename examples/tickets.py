"""An MCP server with a table of tickets in SQLite. examples/help_desk.py starts it.

python examples/tickets.py tickets.sqlite
"""

from __future__ import annotations

import sqlite3
import sys

from mcp.server import MCPServer

if len(sys.argv) != 2:
    sys.exit("usage: python examples/tickets.py tickets.sqlite")
db = sqlite3.connect(sys.argv[1], check_same_thread=False)
db.execute("CREATE TABLE IF NOT EXISTS ticket (number INTEGER PRIMARY KEY, problem TEXT, state TEXT)")
server = MCPServer("tickets", log_level="WARNING")


@server.tool()
async def open_ticket(problem: str) -> str:
    """Open a ticket for a problem that the articles do not solve; tell the caller its number."""
    with db:
        number = db.execute("INSERT INTO ticket (problem, state) VALUES (?, 'open')", [problem]).lastrowid
    return f"Ticket {number} is open. Somebody calls back today."


@server.tool()
async def ticket_state(number: int) -> str:
    """Return the state of a ticket."""
    found = db.execute("SELECT state, problem FROM ticket WHERE number = ?", [number]).fetchone()
    return f"Ticket {number} is {found[0]}: {found[1]}" if found else f"There is no ticket {number}."


server.run("stdio")
