"""A help desk: it answers from a folder of articles, and opens tickets in another program by MCP.

    rejoinder serve examples/help_desk.py --llm openai:http://localhost:11434/v1#qwen3

The articles that fit are in the prompt when the caller's turn ends (examples/knowledge.py). What they do not
solve becomes a ticket: examples/tickets.py, an MCP server in a process of its own, keeps them in SQLite. Who
wants to buy something gets another agent, with other instructions and tools.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from knowledge import index, search

from rejoinder import Agent, Call, McpServer

HERE = Path(__file__).parent
TICKETS = os.environ.get("TICKETS_DB", "tickets.sqlite")
PRICES = {"laptop": 900, "screen": 240, "headset": 60}


@asynccontextmanager
async def articles() -> AsyncIterator[sqlite3.Connection]:
    """Read the articles once, for all calls."""
    db = index(Path(os.environ.get("ARTICLES", HERE / "help_articles")))
    yield db
    db.close()


orders = Agent[None, None](
    "You take orders for equipment. Tell the price before you order.",
    greeting="This is the order desk. What do you need?",
    name="orders",
)
agent = Agent[None, sqlite3.Connection](
    "You are the help desk. Answer in one or two sentences, from the information that you get. If it does "
    "not solve the problem, open a ticket. Hand the call over if somebody wants to buy something.",
    greeting="Help desk, what is the matter?",
    lifespan=articles,
    mcp=[McpServer.stdio(sys.executable, str(HERE / "tickets.py"), TICKETS, name="tickets")],
    agents=[orders],
    name="help desk",
)


@agent.context
async def look_up(call: Call[None, sqlite3.Connection], words: str) -> str:
    """Search the articles for what the caller has said so far."""
    return search(call.resources, words)


@agent.tool
async def order_desk() -> Agent[None, None]:
    """Hand the call to the order desk, which sells laptops, screens and headsets."""
    return orders


@orders.tool
async def price(article: str) -> str:
    """Return the price of an article in euros."""
    known = {name: cost for name, cost in PRICES.items() if name in article.lower()}
    return ", ".join(f"{name}: {cost} euros" for name, cost in known.items()) or "That is not in stock."
