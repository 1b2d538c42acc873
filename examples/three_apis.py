"""A harness that reads three APIs with one loop: the same question, the same parts of an answer.

    python three_apis.py [URL] [MODEL]

It uses nothing but Python's own library, so that every byte can be seen.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Oslo?"
Part = tuple[str, str]
"""What an answer is made of: `thought`, `text`, or `call` with the tool's name and arguments."""


def events(url: str, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The server-sent events of one request, decoded."""
    headers = {"content-type": "application/json", "authorization": "Bearer none", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[6:])


def messages(url: str, model: str) -> Iterator[Part]:
    """Anthropic Messages: blocks that open, grow and close."""
    body = {
        "model": model,
        "max_tokens": 300,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "weather", "description": "Tell the weather.", "input_schema": TOOL}],
        "messages": [{"role": "user", "content": QUESTION}],
    }
    name, arguments = "", ""
    for event in events(url, "/v1/messages", body):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            name, arguments = event["content_block"]["name"], ""
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "thinking_delta":
                yield "thought", delta["thinking"]
            elif delta["type"] == "text_delta":
                yield "text", delta["text"]
            elif delta["type"] == "input_json_delta":
                arguments += delta["partial_json"]
        elif event["type"] == "content_block_stop" and name:
            yield "call", f"{name} {arguments}"
            name = ""


def responses(url: str, model: str) -> Iterator[Part]:
    """OpenAI Responses: items that are added, grow and are done."""
    body = {
        "model": model,
        "max_output_tokens": 300,
        "stream": True,
        "tools": [{"type": "function", "name": "weather", "description": "Tell the weather.", "parameters": TOOL}],
        "input": QUESTION,
    }
    for event in events(url, "/v1/responses", body):
        if event["type"] in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            yield "thought", event["delta"]
        elif event["type"] == "response.output_text.delta":
            yield "text", event["delta"]
        elif event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
            yield "call", f"{event['item']['name']} {event['item']['arguments']}"


def chat(url: str, model: str) -> Iterator[Part]:
    """OpenAI Chat Completions: deltas, with the arguments of calls in pieces."""
    function = {"name": "weather", "description": "Tell the weather.", "parameters": TOOL}
    body = {
        "model": model,
        "max_tokens": 300,
        "stream": True,
        "tools": [{"type": "function", "function": function}],
        "messages": [{"role": "user", "content": QUESTION}],
    }
    calls: dict[int, list[str]] = {}
    for event in events(url, "/v1/chat/completions", body):
        for choice in event.get("choices", ()):
            delta = choice["delta"]
            if delta.get("reasoning_content"):
                yield "thought", delta["reasoning_content"]
            if delta.get("content"):
                yield "text", delta["content"]
            for call in delta.get("tool_calls") or ():
                parts = calls.setdefault(call["index"], ["", ""])
                parts[0] += call["function"].get("name") or ""
                parts[1] += call["function"].get("arguments") or ""
    for name, arguments in calls.values():
        yield "call", f"{name} {arguments}"


APIS: dict[str, Callable[[str, str], Iterator[Part]]] = {
    "Messages": messages,
    "Responses": responses,
    "Chat Completions": chat,
}


def joined(parts: Iterator[Part]) -> list[Part]:
    """The parts in order, neighbours of one kind put together."""
    whole: list[Part] = []
    for kind, text in parts:
        if whole and whole[-1][0] == kind and kind != "call":
            whole[-1] = (kind, whole[-1][1] + text)
        else:
            whole.append((kind, text))
    return [(kind, text.strip()) for kind, text in whole if text.strip()]


def main(url: str = "http://127.0.0.1:8390", model: str = "default") -> None:
    """Ask each API, and show what came."""
    for name, read in APIS.items():
        print(f"== {name}")
        for kind, text in joined(read(url, model)):
            print(f"{kind:8} {text}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
