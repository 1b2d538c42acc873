"""Four kinds of agent over three APIs, each with its own habit of sending the history back.

Promise: a turn is taken only when its answer ended as its API ends one; anything less is asked again, as clients do.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TRIES = 60


class Unfinished(Exception):
    """An answer that did not come to its end."""


class Refused(Exception):
    """An answer that no retry can mend."""


class Taken(msgspec.Struct):
    """A turn that its client has: the words it read, the calls, the verdict on its prefix, and how often it asked."""

    text: str
    calls: list[dict[str, Any]]
    verdict: str
    tries: int = 1
    stored: str | None = None


class Agent:
    """What is common: asking again. `address` gives where the next request goes."""

    path = ""

    def __init__(self, address: Callable[[], str], name: str, loop: int, system: str) -> None:
        self.address = address
        self.name = name
        self.task = f"loop-of-{loop} session {name}"
        self.system = system
        self.refusals: list[str] = []
        self.breaks: list[str] = []

    def body(self, stream: bool) -> dict[str, Any]:
        """The next request."""
        raise NotImplementedError

    def read(self, answer: dict[str, Any]) -> Taken:
        """A whole answer; Unfinished where it is none."""
        raise NotImplementedError

    def whole(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole answer of a stream; Unfinished where it stops before its end."""
        raise NotImplementedError

    async def turn(self) -> Taken:
        """Ask until there is an answer, each time over a connection of its own."""
        stream = random.random() < 0.5
        for tries in range(1, TRIES):
            try:
                taken = await self._asked(stream)
                taken.tries = tries
                return taken
            except (aiohttp.ClientError, OSError, TimeoutError, Unfinished) as error:
                self.breaks.append(type(error).__name__)
                await asyncio.sleep(random.uniform(0.05, 0.3))
        raise Refused(f"no answer after {TRIES} tries")

    async def _asked(self, stream: bool) -> Taken:
        timeout = aiohttp.ClientTimeout(total=60)
        headers = {"x-session-id": self.name, "authorization": "Bearer x"}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self.address() + self.path, json=self.body(stream), headers=headers) as answer,
        ):
            if answer.status in (429, 503, 529):
                self.refusals.append(str(answer.status))
                raise Unfinished
            if answer.status != 200:
                raise Refused(f"{answer.status}: {(await answer.text())[:300]}")
            if stream:
                events = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")]
                taken = self.read(self.whole(events))
            else:
                taken = self.read(await answer.json())
            taken.verdict = answer.headers.get("x-turnwire-prefix", "").partition(";")[0]
            return taken


class Messages(Agent):
    """Claude Code's habit: thoughts and signatures as they came."""

    path = "/v1/messages"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": self.task}]

    def body(self, stream: bool) -> dict[str, Any]:
        return {
            "model": "m",
            "max_tokens": 999,
            "stream": stream,
            "system": self.system,
            "messages": self.messages,
            "tools": [{"name": "Write", "description": "Writes.", "input_schema": SCHEMA}],
            "thinking": {"type": "enabled", "budget_tokens": 500},
        }

    def whole(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        if not events or events[-1]["type"] != "message_stop":
            raise Unfinished
        content: list[dict[str, Any]] = []
        for event in events:
            if event["type"] == "content_block_start":
                content.append(event["content_block"] | {"partial": ""})
            elif event["type"] == "content_block_delta":
                block, delta = content[-1], event["delta"]
                for key in ("text", "thinking", "signature"):
                    if key in delta:
                        block[key] = block.get(key, "") + delta[key]
                block["partial"] += delta.get("partial_json", "")
        for block in content:
            partial = block.pop("partial")
            if block["type"] == "tool_use":
                block["input"] = json.loads(partial or "{}")
        return {"content": content}

    def read(self, answer: dict[str, Any]) -> Taken:
        content = answer["content"]
        calls = [block for block in content if block["type"] == "tool_use"]
        self.messages.append({"role": "assistant", "content": content})
        if calls:
            results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "done: ok"} for call in calls]
            self.messages.append({"role": "user", "content": results})
        text = "".join(block.get("text", "") for block in content if block["type"] == "text")
        return Taken(text, [call["input"] for call in calls], "")


class Chat(Agent):
    """The OpenAI SDK's habit: thoughts dropped, arguments written again; nothing carries the turn but the store."""

    path = "/v1/chat/completions"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.task},
        ]

    def body(self, stream: bool) -> dict[str, Any]:
        function = {"name": "Write", "description": "Writes.", "parameters": SCHEMA}
        tools = [{"type": "function", "function": function}]
        return {"model": "m", "stream": stream, "messages": self.messages, "tools": tools}

    def whole(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
        if not any(reasons):
            raise Unfinished
        text, calls = "", {}
        for delta in (choice["delta"] for event in events for choice in event["choices"]):
            text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                known = calls.setdefault(call["index"], {"id": "", "function": {"name": "", "arguments": ""}})
                known["id"] += call.get("id") or ""
                known["function"]["name"] += call["function"].get("name") or ""
                known["function"]["arguments"] += call["function"].get("arguments") or ""
        return {"choices": [{"message": {"content": text, "tool_calls": list(calls.values())}}]}

    def read(self, answer: dict[str, Any]) -> Taken:
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        inputs = [json.loads(call["function"]["arguments"]) for call in calls]
        made = [
            {"id": call["id"], "type": "function", "function": {"name": "Write", "arguments": json.dumps(given)}}
            for call, given in zip(calls, inputs, strict=True)
        ]
        self.messages.append(
            {"role": "assistant", "content": message["content"]} | ({"tool_calls": made} if made else {})
        )
        self.messages += [{"role": "tool", "tool_call_id": call["id"], "content": "done: ok"} for call in calls]
        return Taken(message["content"] or "", inputs, "")


class Responses(Agent):
    """Codex' habit: nothing stored, encrypted reasoning sent back."""

    path = "/v1/responses"
    stored = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.input: list[dict[str, Any]] = [{"role": "user", "content": self.task}]
        self.previous: str | None = None

    def body(self, stream: bool) -> dict[str, Any]:
        tool = {"type": "function", "name": "Write", "description": "Writes.", "parameters": SCHEMA}
        body = {"model": "m", "stream": stream, "instructions": self.system, "input": self.input, "tools": [tool]}
        if self.stored:
            return body | {"previous_response_id": self.previous}
        return body | {"store": False, "include": ["reasoning.encrypted_content"]}

    def whole(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        if not events or events[-1]["type"] != "response.completed":
            raise Unfinished
        return dict(events[-1]["response"])

    def read(self, answer: dict[str, Any]) -> Taken:
        if answer["status"] != "completed":
            raise Unfinished
        output = answer["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "done: ok"} for call in calls]
        self.previous = answer["id"]
        self.input = results if self.stored else [*self.input, *output, *results]
        text = "".join(
            part["text"] for item in output if item["type"] == "message" for part in item["content"] if "text" in part
        )
        return Taken(text, [json.loads(call["arguments"]) for call in calls], "", stored=self.previous)


class StoredResponses(Responses):
    """The vendor's own state: `previous_response_id`, and only what is new."""

    stored = True


AGENTS: tuple[type[Agent], ...] = (Messages, Chat, Responses, StoredResponses)
