"""A long agent conversation to measure with.

Promise: the same arguments give the same conversation; what varies from request to request is stated by the condition
and by nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import turnwire

__all__ = ["CONDITIONS", "Conversation", "Dice", "conversation", "prose"]

_PHRASE = "the gateway keeps every token of a turn where the engine has already read it and says so when it cannot"
_BILLING = "x-anthropic-billing-header: cc_version=2.1.153; cc_entrypoint=cli; cch={tag};"
_TASK = "The tests of this repository fail. Find out why, fix it, and say what you changed."


class Conversation(msgspec.Struct):
    """What every request of a measurement has in common. `thought` belongs to the last turn of the history."""

    system: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    history: list[dict[str, Any]]
    thought: str
    caller: str

    def body(
        self,
        number: str,
        *,
        line: str = "trace: 0",
        date: str = "2026-01-01",
        tools: list[dict[str, Any]] | None = None,
        thought: str | None = "",
    ) -> dict[str, Any]:
        """One request: the history, the last turn, and a tool's result that no other request has."""
        call = {"type": "tool_use", "id": "toolu_last", "name": self.caller, "input": {"file_path": "last.py"}}
        said = self.thought if thought == "" else thought
        blocks = [call] if said is None else [{"type": "thinking", "thinking": said, "signature": ""}, call]
        result = f"result {number}\n{prose(60, number)}"
        return {
            "model": "default",
            "max_tokens": 1,
            "stream": True,
            "thinking": {"type": "adaptive"},
            "system": [text(line), *self.system, text(f"Today's date is {date}.")],
            "tools": self.tools if tools is None else tools,
            "messages": [
                *self.history,
                {"role": "assistant", "content": blocks},
                {"role": "user", "content": [result_of("toolu_last", result)]},
            ],
        }


class Dice:
    """What varies, drawn anew for every request."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311

    def tag(self) -> str:
        """Ten hexadecimal digits."""
        return f"{self._random.getrandbits(40):010x}"

    def date(self) -> str:
        """A day of some year."""
        return f"{self._random.randint(1000, 9999)}-{self._random.randint(1, 12):02}-{self._random.randint(1, 28):02}"

    def order(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same tools in another order."""
        return self._random.sample(tools, len(tools))


Condition = Callable[[Conversation, str, Dice], dict[str, Any]]

CONDITIONS: dict[str, tuple[str, Condition]] = {
    "stable": ("nothing varies but the last result", lambda c, n, d: c.body(n)),
    "varying": ("the first line of the system prompt varies", lambda c, n, d: c.body(n, line=f"trace: {d.tag()}")),
    "stripped": (
        "a varying billing line, which the gateway keeps out of prompts",
        lambda c, n, d: c.body(n, line=_BILLING.format(tag=d.tag())),
    ),
    "date": ("a date at the end of the system prompt varies", lambda c, n, d: c.body(n, date=d.date())),
    "tool order": ("the tools come in another order", lambda c, n, d: c.body(n, tools=d.order(c.tools))),
    "thought changed": (
        "the last thought comes back with another first word",
        lambda c, n, d: c.body(n, thought=f"{d.tag()} {c.thought}"),
    ),
    "thought dropped": ("the last thought does not come back", lambda c, n, d: c.body(n, thought=None)),
}


def prose(words: int, seed: object) -> str:
    """Words that look like a prompt and are the same for the same seed."""
    dice, known = random.Random(str(seed)), _PHRASE.split()  # noqa: S311
    return " ".join(dice.choice(known) for _ in range(words))


def text(said: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": said}


def result_of(call: str, said: str) -> dict[str, Any]:
    """A tool's result block."""
    return {"type": "tool_result", "tool_use_id": call, "content": said}


async def conversation(
    tokens: int, recorded: dict[str, Any] | None, count: Callable[[dict[str, Any]], Awaitable[int]]
) -> Conversation:
    """A conversation of about `tokens` prompt tokens, as `count` counts them: the system prompt and tools of a recorded
    request, or plain ones, then an agent that reads one source file after another."""
    base = recorded or {}
    system = base.get("system") or [text(prose(3000, "system"))]
    if isinstance(system, str):
        system = [text(system)]
    system = [text(block["text"]) for block in system if not block["text"].startswith("x-anthropic-billing-header")]
    tools = [tool for tool in base.get("tools", ()) if "input_schema" in tool] or [_tool(n) for n in range(12)]
    caller = next((tool["name"] for tool in tools if "read" in tool["name"].lower()), tools[0]["name"])
    made = Conversation(system, tools, [{"role": "user", "content": _TASK}], prose(500, "thought"), caller)
    sources = sorted(Path(turnwire.__file__).parent.rglob("*.py"))
    total, number = await count(made.body("0")), 0
    while total < tokens:
        source = sources[number % len(sources)].read_text(encoding="utf-8")
        if total + len(source) // 3 > tokens:
            source = source[: max(200, (tokens - total) * 3)]
        name, call = sources[number % len(sources)].name, f"toolu_{number}"
        thought = {"type": "thinking", "thinking": f"I read {name} next. {prose(20, number)}", "signature": ""}
        made.history += [
            {
                "role": "assistant",
                "content": [
                    thought,
                    {"type": "tool_use", "id": call, "name": caller, "input": {"file_path": name}},
                ],
            },
            {"role": "user", "content": [result_of(call, source)]},
        ]
        total, number = await count(made.body("0")), number + 1
    return made


def _tool(number: int) -> dict[str, Any]:
    name = "read" if not number else f"tool_{number}"
    schema = {"type": "object", "properties": {"file_path": {"type": "string", "description": prose(20, number)}}}
    return {"name": name, "description": prose(120, f"tool {number}"), "input_schema": schema}
