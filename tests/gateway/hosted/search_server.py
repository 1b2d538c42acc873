"""A small MCP server: a search over three pages, a page to read, and a sum. Over pipes, or HTTP with a port."""

from __future__ import annotations

import sys
import time
from typing import Any

from mcp.server import MCPServer

PAGES = [
    {"title": "The cup", "url": "https://sport.example/cup", "content": "Rovers won the cup 3-1."},
    {"title": "Old news", "url": "https://old.example/", "content": "Nobody remembers."},
    {"title": "Weather", "url": "https://sub.sport.example/w", "content": "It rained – heavily."},
]
server = MCPServer("search")


@server.tool()
def search(q: str) -> dict[str, Any]:
    """Search the pages."""
    if q == "slow":
        time.sleep(2)
    if q == "broken":
        raise RuntimeError("the index is gone")
    return {"results": PAGES}


@server.tool()
def read_page(url: str) -> str:
    """Read a page."""
    return f"All about {url}"


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
