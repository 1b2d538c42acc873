"""Clients of the three APIs that check every character of every answer.

Promise: what a stand-in says follows from the nonce in the prompt, so an answer that is cut, doubled or another's is
seen; some clients leave in mid-stream and some read slowly, on purpose.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp

from benchmarks.engines.stand_ins import TOKENS

APIS = ("messages", "chat", "responses")
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}


def story(nonce: str, tokens: int) -> str:
    """What a stand-in says to a nonce, thought and answer in one."""
    words = " ".join(f"{nonce}:{number}" for number in range(tokens // 4))
    return f"thinking about {nonce}{words} the end of {nonce}"


class Client:
    """One user: turns with `pause` seconds between them, each conversation up to `turns` turns long. `material` is how
    many characters of its own each question brings along; `real`: asks the real engine, whose words mean nothing."""

    def __init__(
        self,
        number: int,
        base: str,
        session: aiohttp.ClientSession,
        tally: Counter[str],
        *,
        pause: tuple[float, float] = (0.0, 0.0),
        turns: int = 7,
        material: int = 0,
        tokens: int = TOKENS,
        real: bool = False,
    ) -> None:
        self.base = base
        self.session = session
        self.tally = tally
        self.number = number
        self.dice = random.Random(number)
        self.api = APIS[number % len(APIS)]
        self.pause = pause
        self.turns = turns
        self.material = material
        self.tokens = tokens
        self.real = real
        self.tools = False

    async def run(self, more: Callable[[], bool]) -> None:
        """Ask until `more` says no."""
        turn, history = 0, list[tuple[str, str]]()
        while more():
            turn += 1
            nonce = f"{self.number}x{turn}"
            self.tally["asked"] += 1
            question = f"{self._material(nonce)}Tell me about nonce-{nonce}"
            outcome, said = await self._turn(nonce, question, history)
            self.tally[outcome] += 1
            if outcome == "complete" and len(history) < 2 * (self.turns - 1):
                history += [("user", question), ("assistant", said)]
            else:
                history = []
            await asyncio.sleep(self.dice.uniform(*self.pause))

    def _material(self, nonce: str) -> str:
        """Something to read that nobody else has."""
        text = ""
        while len(text) < self.material:
            text += f"{self.dice.getrandbits(48):x} is a line of a file that was read for {nonce}\n"
        return text

    async def _turn(self, nonce: str, question: str, history: list[tuple[str, str]]) -> tuple[str, str]:
        messages = [{"role": role, "content": text} for role, text in history]
        messages.append({"role": "user", "content": question})
        stream = self.dice.random() < 0.8
        leaves, slow = stream and self.dice.random() < 0.05, stream and self.dice.random() < 0.05
        body: dict[str, Any] = {"model": "tiny" if self.real else "stand-in", "stream": stream}
        body |= {"input" if self.api == "responses" else "messages": messages}
        if not history:
            self.tools = self.dice.random() < 0.3
        if self.tools:
            body["tools"] = [self._tool()]
        limit = 12 if self.real else 4096
        body |= {"max_output_tokens" if self.api == "responses" else "max_tokens": limit}
        if self.api == "messages":
            body["thinking"] = {"type": "adaptive"}
        try:
            async with self.session.post(self.base + PATHS[self.api], json=body) as answer:
                if answer.status != 200:
                    self.tally[f"status {answer.status}"] += 1
                    return "told an error", ""
                if not stream:
                    return self._judge(nonce, *self._whole(json.loads(await answer.read())))
                return self._judge(nonce, *await self._streamed(answer, leaves, slow))
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return "cut with an error", ""

    def _tool(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        if self.api == "messages":
            return {"name": "read", "input_schema": schema}
        tool = {"name": "read", "parameters": schema}
        return {"type": "function", **tool} if self.api == "responses" else {"type": "function", "function": tool}

    def _whole(self, data: dict[str, Any]) -> tuple[str, str, str]:
        """The thought, the text and how it ended."""
        if self.api == "messages":
            parts = data["content"]
            thought = "".join(p.get("thinking", "") for p in parts)
            return thought, "".join(p.get("text", "") for p in parts), "ended"
        if self.api == "chat":
            message = data["choices"][0]["message"]
            return message.get("reasoning_content") or "", message.get("content") or "", "ended"
        thought = text = ""
        for item in data["output"]:
            found = "".join(part["text"] for part in [*item.get("content", ()), *item.get("summary", ())])
            thought, text = (thought + found, text) if item["type"] == "reasoning" else (thought, text + found)
        return thought, text, "ended" if data["status"] in ("completed", "incomplete") else "failed"

    async def _streamed(self, answer: aiohttp.ClientResponse, leaves: bool, slow: bool) -> tuple[str, str, str]:
        thought, text, end, count = "", "", "open", 0
        async for raw in answer.content:
            if not raw.startswith(b"data: ") or raw.startswith(b"data: [DONE]"):
                end = "ended" if raw.startswith(b"data: [DONE]") and end == "open" else end
                continue
            data = json.loads(raw[6:])
            kind = data.get("type", "")
            more, other = self._delta(kind, data)
            thought, text, count = thought + more, text + other, count + 1
            if leaves and count > 6:
                answer.close()
                return thought, text, "left"
            if slow and count % 20 == 0:
                await asyncio.sleep(0.2)
            if kind in ("message_stop", "response.completed", "response.incomplete"):
                end = "ended"
            elif kind in ("error", "response.failed") or "error" in data:
                end = "failed" if data.get("error") or kind == "error" or kind == "response.failed" else end
        return thought, text, end

    @staticmethod
    def _delta(kind: str, data: dict[str, Any]) -> tuple[str, str]:
        if kind == "content_block_delta":
            return data["delta"].get("thinking", ""), data["delta"].get("text", "")
        if kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            return data["delta"], ""
        if kind == "response.output_text.delta":
            return "", data["delta"]
        if data.get("choices"):
            delta = data["choices"][0]["delta"]
            return delta.get("reasoning_content") or "", delta.get("content") or ""
        return "", ""

    def _judge(self, nonce: str, thought: str, text: str, end: str) -> tuple[str, str]:
        if end == "left":
            return "left", ""
        if end == "failed":
            return "told an error", ""
        if end == "open":
            return "SILENTLY TRUNCATED", ""
        if self.real:
            return "complete on vLLM", ""
        whole = thought + text if thought else f"thinking about {nonce}{text}"
        return ("complete", text) if whole == story(nonce, self.tokens) else ("WRONG TEXT AS SUCCESS", "")
