"""A small MCP server: a search over three pages, a page to read, a sum, code, and files. Over pipes, or HTTP."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

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


@server.tool()
def run_python(code: str) -> dict[str, Any]:
    """Run Python code."""
    if code == "slow":
        time.sleep(2)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=10)
    return {"stdout": done.stdout, "stderr": done.stderr, "exit_code": done.returncode}


@server.tool()
def run_shell(command: str) -> str:
    """Run a shell command."""
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=10)
    if done.returncode:
        raise ToolError(done.stderr)
    return done.stdout


@server.tool()
def find_files(query: str, vector_store_ids: list[str]) -> dict[str, Any]:
    """Search files."""
    row = {"file_id": "file_1", "filename": "rules.md", "score": 0.75, "text": f"{query} in {vector_store_ids}"}
    return {"results": [row, {**row, "file_id": "file_2"}]}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
