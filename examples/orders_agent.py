"""An agent whose tools are those of an MCP server, which it starts as a process of its own.

    rejoinder serve examples/orders_agent.py --llm openai:http://localhost:11434/v1#qwen3

The agent may ask for the state of an order. It may not cancel one, though the server offers that.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rejoinder import Agent, McpServer

ORDERS = McpServer.stdio(
    sys.executable,
    str(Path(__file__).with_name("orders_server.py")),
    name="orders",
    allow=["order_status"],
    timeout_s=5.0,
)
agent = Agent(
    "You answer questions about orders. Ask for the number of the order.",
    greeting="This is the shop. Which order is it about?",
    mcp=[ORDERS],
)
