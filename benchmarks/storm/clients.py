"""One turn as its client sees it, on any of the three APIs.

Promise: what became of a turn is one word; a word in capitals is a promise that was broken.
"""

from __future__ import annotations

import json
import random
from typing import Any

import aiohttp

from benchmarks.storm.story import said

PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}


def body_of(api: str, nonce: str, stream: bool) -> dict[str, Any]:
    question = f"Tell me about nonce-{nonce}"
    if api == "responses":
        return {"model": "m", "input": question, "stream": stream, "store": False}
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": question}], "stream": stream}
    return body | {"max_tokens": 8000} if api == "messages" else body


def text_in(api: str, data: dict[str, Any]) -> str:
    """The part of the answer's text that one event carries."""
    if api == "messages":
        return str(data.get("delta", {}).get("text", ""))
    if api == "responses":
        return str(data["delta"]) if data["type"] == "response.output_text.delta" else ""
    return "".join(part["delta"].get("content") or "" for part in data.get("choices", ()))


def text_of(api: str, answer: dict[str, Any]) -> str:
    """The text of a whole answer."""
    if api == "messages":
        return "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    if api == "responses":
        messages = [item for item in answer["output"] if item["type"] == "message"]
        return "".join(part["text"] for item in messages for part in item["content"])
    return str(answer["choices"][0]["message"]["content"])


ENDS = {"messages": "message_stop", "responses": "response.completed"}
ERRORS = {"messages": "error", "responses": "response.failed"}


async def ask(session: aiohttp.ClientSession, base: str, api: str, nonce: str, dice: random.Random) -> str:
    """One turn, and what became of it as its client sees it."""
    stream, leaves = dice.random() < 0.8, dice.random() < 0.1
    pieces: list[str] = []
    ended = failed = False
    try:
        async with session.post(base + PATHS[api], json=body_of(api, nonce, stream)) as answer:
            if answer.status != 200:
                assert (await answer.json())["error"]["message"]
                return "refused"
            if not stream:
                return "complete" if text_of(api, await answer.json()) == said(nonce) else "WRONG TEXT AS SUCCESS"
            async for row in answer.content:
                if not row.startswith(b"data: "):
                    continue
                if row.startswith(b"data: [DONE]"):
                    ended = True
                    continue
                data = json.loads(row[6:])
                pieces.append(text_in(api, data))
                ended = ended or data.get("type") == ENDS.get(api, "")
                failed = failed or data.get("type") == ERRORS.get(api, "") or "error" in data.keys() - {"type"}
                if leaves and len(pieces) > 8:
                    answer.close()
                    return "left"
    except aiohttp.ClientError:
        return "cut"
    if ended and not failed:
        return "complete" if "".join(pieces) == said(nonce) else "WRONG TEXT AS SUCCESS"
    return "told an error" if failed else "SILENTLY TRUNCATED"
