"""An MCP server that knows orders, for examples/orders_agent.py. It needs the package mcp.

python examples/orders_server.py              over its standard input and output
python examples/orders_server.py http 8765    over streamable HTTP, at http://127.0.0.1:8765/mcp
"""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("orders", log_level="WARNING")
ORDERS = {"4711": "packed, it leaves tomorrow", "4712": "delivered yesterday"}


@server.tool()
async def order_status(number: str) -> str:
    """Return the state of an order by its number of four digits."""
    if number not in ORDERS:
        raise ToolError("There is no such order: ask for the number again.")
    return ORDERS[number]


@server.tool()
async def cancel_order(number: str) -> str:
    """Cancel an order."""
    return ORDERS.pop(number, "There was no such order.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
