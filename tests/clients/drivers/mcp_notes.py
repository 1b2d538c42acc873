"""A tiny MCP server on stdio with one tool, `add_note`, that appends to the file named by the first argument."""

import json
import sys
from pathlib import Path

TOOL = {
    "name": "add_note",
    "description": "Write a note down.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        with Path(sys.argv[1]).open("a") as file:
            file.write(params["arguments"]["text"] + "\n")
        return {"content": [{"type": "text", "text": "noted"}]}
    return {}


for row in sys.stdin:
    message = json.loads(row)
    if "id" in message and "method" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message["method"], message.get("params", {}))}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
