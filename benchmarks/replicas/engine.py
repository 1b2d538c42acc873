"""An engine that remembers what it read and wrote, so that every turn's tokens can be compared with those before it.

Promise: it speaks vLLM's completions wire; its tokens are not those that anybody would get by reading the text again;
every answer begins and ends with a mark that no other answer has.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
from array import array

from aiohttp import web

from turnwire.prompts.tokenizers.load import load_tokenizer

ASKED = re.compile(r"loop-of-(\d+) ")
TASK = re.compile(r"task-of-(\d+) by (\w+) with (\w+)\.")
TOKENIZER = load_tokenizer(None)
END = TOKENIZER.special_tokens["<|im_end|>"]


class Engine:
    """`delay_s` lies between two pieces of an answer; `turns` holds all that was read and written, by mark. `tasks`
    holds the same of real clients' tasks, by the name of their tool: how many steps had been done before, what was
    read, what was written. Such a client is asked for `task-of-STEPS by TOOL with PARAMETER.`, where the tool runs a
    command."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.turns: dict[str, tuple[array[int], array[int]]] = {}
        self.tasks: dict[str, list[tuple[int, array[int], array[int]]]] = {}
        self.started = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen on a free port; the address."""
        app = web.Application(client_max_size=1 << 28)
        app.add_routes(
            [
                web.post("/v1/completions", self._complete),
                web.get("/v1/models", self._models),
                web.get("/version", self._version),
                web.get("/health", self._health),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "max_model_len": 131072}]})

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._said(request)
        except ConnectionError:
            # A process that was killed reads no more.
            raise asyncio.CancelledError from None

    async def _said(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = array("I", body["prompt"])
        if not body.get("stream"):
            usage = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
            choice = {"index": 0, "text": "", "token_ids": [0], "finish_reason": "length"}
            return web.json_response({"id": "x", "choices": [choice], "usage": usage})
        mark = secrets.token_hex(6)
        said = TOKENIZER.decode(list(prompt))
        output = _uneven(_answer(said, mark))
        if ASKED.search(said):
            self.turns[mark] = (prompt, array("I", [*output, END]))
        elif task := TASK.search(said):
            step = said.rpartition("task-of-")[2].count("done: ok")
            self.tasks.setdefault(task[2], []).append((step, prompt, array("I", [*output, END])))
        self.started += 1
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        detokenizer = TOKENIZER.detokenizer()
        for at in range(0, len(output), 8):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            part = output[at : at + 8]
            choice = {"index": 0, "text": detokenizer.feed(part), "token_ids": part, "finish_reason": None}
            await answer.write(_event({"id": "x", "choices": [choice]}))
        count = len(output) + 1
        usage = {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}
        last = {"index": 0, "text": "", "token_ids": [END], "finish_reason": "stop"}
        await answer.write(_event({"id": "x", "choices": [last]}))
        await answer.write(_event({"id": "x", "choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        return answer


def _answer(said: str, mark: str) -> str:
    """What comes next after the words of a prompt."""
    if loops := ASKED.findall(said):
        done = said.rpartition("loop-of-")[2].count("done: ok")
        return _words(mark, "Write", "path", f"{mark}  x") if done < int(loops[-1]) else _words(mark)
    if tasks := TASK.findall(said):
        steps, tool, parameter = tasks[-1]
        done = said.rpartition("task-of-")[2].count("done: ok")
        # The quotes keep the command itself from counting as done.
        command = f"echo {mark} >> steps.txt; echo 'done'': ok'"
        return _words(mark, tool, parameter, command) if done < int(steps) else f"</think>\n\nall {steps} steps done"
    return "</think>\n\nFine."


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _words(mark: str, tool: str | None = None, parameter: str = "", value: str = "") -> str:
    """What the model says: a thought, a sentence, and a call unless it is the last turn of its loop."""
    text = f"thinking of {mark}\n</think>\n\nbegin-{mark} some more words end-{mark}"
    if tool is None:
        return text
    call = f"<function={tool}>\n<parameter={parameter}>\n{value}\n</parameter>\n</function>"
    return f"{text}\n<tool_call>\n{call}\n</tool_call>"


def _uneven(text: str) -> list[int]:
    """The text's tokens, cut where no tokenizer would cut it."""
    middle = random.randrange(1, len(text))
    return [*TOKENIZER.encode(text[:middle]), *TOKENIZER.encode(text[middle:])]
