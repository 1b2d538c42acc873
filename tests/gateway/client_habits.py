"""A tool loop as real clients send it back: what each of them does to a turn, on each API.

Promise: a habit gets the history so far, asks for the next turn, and gives back what that client would add to the
history; nothing else of the answer is kept.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from turnwire.engines.scripted.script import Script
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.templates.template import ChatTemplate
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Block, Message, ReasoningBlock, TextBlock, Tool, ToolCallBlock


class Posts(Protocol):
    """Where a habit sends its requests."""

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]: ...


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "number": {"type": "integer"},
        "all": {"type": "boolean", "default": False},
    },
}
TOOL = Tool(name="Write", description="Writes.", schema=SCHEMA)
# What the model says: each turn a thought, text, and the arguments of its calls. The last has none and ends the loop.
TURNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("First the file.", "I write it.", ('{"number": 12345678901234567890, "path": "a b.txt  "}', '{"path":"ü.md"}')),
    ("", "", ('{ "path" : "second" }',)),
    ("Nearly done. 日本語", "", ('{"path": "third", "number": 1.0}', '{"number": -0, "path": "\\u00e9"}')),
    ("All is well.", "Done: two files.", ()),
)


class Uneven:
    """A tokenizer whose tokens are not those that anybody would get by reading the text again, as a model's may be."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def encode(self, text: str) -> list[int]:
        middle = len(text) // 2
        return [*self._inner.encode(text[:middle]), *self._inner.encode(text[middle:])]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def written(path: Path) -> list[str]:
    """The turns in the template's own form, a little untidy, as models are."""
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    template = ChatTemplate(path.read_text(encoding="utf-8"), special, clock=lambda: datetime(2026, 1, 2))
    builder = PromptBuilder(template, load_tokenizer())
    lines: list[str] = []
    for thought, text, calls in TURNS:
        blocks: list[Block] = [ReasoningBlock(text=thought)] if thought else []
        blocks += [TextBlock(text=text)] if text else []
        blocks += [ToolCallBlock(id=f"call_{at}", name="Write", arguments=each) for at, each in enumerate(calls)]
        message = Message(role="assistant", blocks=tuple(blocks))
        splicer = TemplateSplicer(template, builder.traits, [message], [TOOL], [])
        said = splicer.rewritten(message, builder.traits.thinking_on if thought else builder.traits.thinking_off or {})
        lines.append((said or text or "Nothing.").replace(", ", " ,", 1))
    return lines


# ------------------------------------------------------------------------------------------------ clients' habits


def as_javascript(arguments: str, *, normalised: bool = False) -> dict[str, Any]:
    """Arguments after JSON.parse; `normalised` also in the schema's order, with its defaults, without blanks at line
    ends."""
    value: dict[str, Any] = json.loads(
        arguments, parse_int=lambda text: int(float(text)) if len(text) > 15 else int(text)
    )
    if not normalised:
        return value
    ordered = {key: value[key] for key in SCHEMA["properties"] if key in value} | {"all": False}
    if isinstance(ordered.get("path"), str):
        ordered["path"] = ordered["path"].rstrip()
    if isinstance(ordered.get("number"), float):
        ordered["number"] = int(ordered["number"])
    return ordered


async def messages(
    client: Posts, history: list[dict[str, Any]], opening: str = "Go.", *, thinking: bool = True
) -> list[dict[str, Any]]:
    """Claude Code: thoughts and signatures verbatim, inputs normalised, blank text dropped."""
    body: dict[str, Any] = {
        "model": "test-model",
        "max_tokens": 999,
        "messages": [{"role": "user", "content": opening}, *history],
        "tools": [{"name": "Write", "description": "Writes.", "input_schema": SCHEMA}],
    }
    if thinking:
        body["thinking"] = {"type": "adaptive"}
        body["context_management"] = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    status, answer = await client.post("/v1/messages", body)
    assert status == 200, answer
    content = [block for block in answer["content"] if block["type"] != "text" or block["text"].strip()]
    calls = [block for block in content if block["type"] == "tool_use"]
    for block in calls:
        block["input"] = as_javascript(json.dumps(block["input"]), normalised=True)
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"} for call in calls]
    said = [{"role": "assistant", "content": content}] if content else []
    return [*said, {"role": "user", "content": results or "And now?"}]


async def messages_without_thinking(
    client: Posts, history: list[dict[str, Any]], opening: str = "Go."
) -> list[dict[str, Any]]:
    """The same where the user has switched thinking off: nothing in such an answer can carry a seal."""
    return await messages(client, history, opening, thinking=False)


async def responses(
    client: Posts, history: list[dict[str, Any]], opening: str = "Go.", *, verbatim: bool = False
) -> list[dict[str, Any]]:
    """OpenClaw: encrypted reasoning with empty summaries and without ids, arguments written again."""
    tool = {"type": "function", "name": "Write", "description": "Writes.", "parameters": SCHEMA}
    body = {
        "model": "test-model",
        "input": [{"role": "user", "content": opening}, *history],
        "tools": [tool],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"},
    }
    status, answer = await client.post("/v1/responses", body)
    assert status == 200, answer
    items: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for item in answer["output"]:
        if item["type"] == "reasoning":
            summary = item["summary"] if verbatim else []
            items.append({"type": "reasoning", "summary": summary, "encrypted_content": item["encrypted_content"]})
        elif item["type"] == "function_call":
            arguments = item["arguments"]
            if not verbatim:
                arguments = json.dumps(as_javascript(arguments), separators=(",", ":"))
            items.append({key: item[key] for key in ("type", "call_id", "name")} | {"arguments": arguments})
            results.append({"type": "function_call_output", "call_id": item["call_id"], "output": "ok"})
        else:
            items.append({"type": "message", "role": "assistant", "content": item["content"]})
    return [*items, *(results or [{"role": "user", "content": "And now?"}])]


async def codex(client: Posts, history: list[dict[str, Any]], opening: str = "Go.") -> list[dict[str, Any]]:
    """Codex: every item as it came, without its id."""
    return await responses(client, history, opening, verbatim=True)


async def chat(
    client: Posts, history: list[dict[str, Any]], opening: str = "Go.", *, thoughts: bool = False
) -> list[dict[str, Any]]:
    """The OpenAI SDK by hand: thoughts dropped, ids stripped, arguments written again."""
    function = {"name": "Write", "description": "Writes.", "parameters": SCHEMA}
    body = {
        "model": "test-model",
        "messages": [{"role": "user", "content": opening}, *history],
        "tools": [{"type": "function", "function": function}],
        "reasoning_effort": "medium",
    }
    status, answer = await client.post("/v1/chat/completions", body)
    assert status == 200, answer
    message = answer["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    for call in calls:
        call["id"] = call["id"] if thoughts else "".join(filter(str.isalnum, call["id"]))
        call["function"]["arguments"] = json.dumps(as_javascript(call["function"]["arguments"]))
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    said = {"role": "assistant", "content": message["content"]} | ({"tool_calls": calls} if calls else {})
    if thoughts and message.get("reasoning_content"):
        said["reasoning_content"] = message["reasoning_content"]
    return [said, *(results or [{"role": "user", "content": "And now?"}])]


async def chat_with_thoughts(
    client: Posts, history: list[dict[str, Any]], opening: str = "Go."
) -> list[dict[str, Any]]:
    """opencode, Qwen Code and pi: all thoughts of a turn as one `reasoning_content`."""
    return await chat(client, history, opening, thoughts=True)


Habit = Callable[..., Awaitable[list[dict[str, Any]]]]
APIS: dict[str, Habit] = {"messages": messages, "responses": responses, "chat": chat}
HABITS: dict[str, Habit] = {
    **APIS,
    "messages, thinking off": messages_without_thinking,
    "responses, verbatim": codex,
    "chat, thoughts kept": chat_with_thoughts,
}


@contextmanager
def uneven_tokens() -> Iterator[None]:
    """Scripts that are loaded now say tokens that nobody would get by reading their text again."""
    load = Script.load.__func__  # type: ignore[attr-defined]
    with patch.object(Script, "load", classmethod(lambda cls, path, tokenizer: load(cls, path, Uneven(tokenizer)))):
        yield
