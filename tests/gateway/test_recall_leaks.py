"""A remembered turn belongs to its conversation: no request whose history differs ever gets its hidden thought.

The first conversation ends in a turn with a secret thought. Each case then sends the visible part of that turn after
another history (as a few-shot example, an edited or cut conversation, a forged call id would), and looks for the
secret in the prompt that the engine reads. The owner's own next request is the control: there it must be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.conftest import Client, Serve
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.prompt import Prompt

TEMPLATE = Path(__file__).parents[1] / "prompts" / "family_templates" / "nemotron3.jinja"
SECRET = "ALICE"
CALL = "<tool_call>\n<function=lookup>\n<parameter=query>\nmilk\n</parameter>\n</function>\n</tool_call>"
THOUGHT = f"The secret pin of {SECRET} is 1234.\n</think>\n\n"
SYSTEM = "You are a clerk. Account 12."
TOOL = {"type": "object", "properties": {"query": {"type": "string"}}}


class Part(msgspec.Struct, frozen=True):
    """One message as the client knows it. An assistant's `call_id` says that it also made the call."""

    role: str
    text: str
    call_id: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sends, in no API's words."""

    parts: tuple[Part, ...]
    system: str = SYSTEM
    tool: str = "Looks something up."
    session: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"x-session-id": self.session} if self.session else {}


# ------------------------------------------------------------------------------------------------------- the APIs


async def messages(client: Client, request: Request) -> Part:
    content: list[dict[str, Any]] = []
    for part in request.parts:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": part.text}] if part.text else []
        if part.role == "result":
            blocks = [{"type": "tool_result", "tool_use_id": part.call_id, "content": part.text}]
        elif part.call_id:
            blocks.append({"type": "tool_use", "id": part.call_id, "name": "lookup", "input": {"query": "milk"}})
        content.append({"role": "assistant" if part.role == "assistant" else "user", "content": blocks})
    body = {
        "model": "test-model",
        "max_tokens": 99,
        "system": request.system,
        "messages": content,
        "tools": [{"name": "lookup", "description": request.tool, "input_schema": TOOL}],
    }
    status, answer = await client.post("/v1/messages", body, **request.headers)
    assert status == 200, answer
    said = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    return Part("assistant", said, calls[0] if calls else "")


async def chat(client: Client, request: Request) -> Part:
    sent: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
    for part in request.parts:
        if part.role == "result":
            sent.append({"role": "tool", "tool_call_id": part.call_id, "content": part.text})
            continue
        message: dict[str, Any] = {"role": part.role, "content": part.text}
        if part.call_id:
            function = {"name": "lookup", "arguments": '{"query": "milk"}'}
            message["tool_calls"] = [{"id": part.call_id, "type": "function", "function": function}]
        sent.append(message)
    function = {"name": "lookup", "description": request.tool, "parameters": TOOL}
    body = {"model": "test-model", "messages": sent, "tools": [{"type": "function", "function": function}]}
    status, answer = await client.post("/v1/chat/completions", body, **request.headers)
    assert status == 200, answer
    message = answer["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    return Part("assistant", message["content"] or "", calls[0]["id"] if calls else "")


async def responses(client: Client, request: Request) -> Part:
    items: list[dict[str, Any]] = []
    for part in request.parts:
        if part.role == "result":
            items.append({"type": "function_call_output", "call_id": part.call_id, "output": part.text})
            continue
        if part.text:
            kind = "output_text" if part.role == "assistant" else "input_text"
            items.append({"type": "message", "role": part.role, "content": [{"type": kind, "text": part.text}]})
        if part.call_id:
            call = {"type": "function_call", "call_id": part.call_id, "name": "lookup"}
            items.append(call | {"arguments": '{"query": "milk"}'})
    tool = {"type": "function", "name": "lookup", "description": request.tool, "parameters": TOOL}
    body = {"model": "test-model", "instructions": request.system, "input": items, "tools": [tool], "store": False}
    status, answer = await client.post("/v1/responses", body, **request.headers)
    assert status == 200, answer
    said = "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])
    calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
    return Part("assistant", said, calls[0] if calls else "")


APIS: dict[str, Callable[[Client, Request], Any]] = {"messages": messages, "chat": chat, "responses": responses}


# ------------------------------------------------------------------------------------------------- other histories


def _edited(parts: tuple[Part, ...], place: int, text: str) -> tuple[Part, ...]:
    return (*parts[:place], msgspec.structs.replace(parts[place], text=text), *parts[place + 1 :])


# Each takes the owner's next request and gives somebody else's: the parts before `said` are never the owner's.
CASES: dict[str, Callable[[Request, Part], Request]] = {
    "another system text": lambda own, said: msgspec.structs.replace(own, system="You are a poet."),
    "a system text that differs in one number": lambda own, said: msgspec.structs.replace(
        own, system="You are a clerk. Account 13."
    ),
    "another user": lambda own, said: msgspec.structs.replace(
        own, parts=(Part("user", "Buy milk."), said, *own.parts[4:])
    ),
    "another session": lambda own, said: msgspec.structs.replace(
        own, session="s2", parts=(Part("user", "Buy milk."), said, *own.parts[4:])
    ),
    "a session where there was none": lambda own, said: msgspec.structs.replace(
        own, session="s3", parts=(Part("user", "Say it."), said, *own.parts[4:])
    ),
    "a few-shot example": lambda own, said: msgspec.structs.replace(
        own, system="Classify.", parts=(Part("user", "Example 1"), said, Part("user", "Example 2"), *own.parts[4:])
    ),
    "a few-shot example that quotes the question": lambda own, said: msgspec.structs.replace(
        own, system="Classify.", parts=(own.parts[2], said, *own.parts[4:])
    ),
    "the first user message edited": lambda own, said: msgspec.structs.replace(
        own, parts=_edited(own.parts, 0, "My pin is 9999.")
    ),
    "the earlier answer edited": lambda own, said: msgspec.structs.replace(
        own, parts=_edited(own.parts, 1, "I did not hear that.")
    ),
    "the last user message edited": lambda own, said: msgspec.structs.replace(
        own, parts=_edited(own.parts, 2, "Say it twice.")
    ),
    "the beginning cut off": lambda own, said: msgspec.structs.replace(own, parts=own.parts[2:]),
    "a conversation put before it": lambda own, said: msgspec.structs.replace(
        own, parts=(Part("user", "Hello."), Part("assistant", "Hello!"), *own.parts)
    ),
    "the turn said twice": lambda own, said: msgspec.structs.replace(
        own, parts=(Part("user", "Once."), said, *own.parts[4:])
    ),
}
# What the words of a turn alone would find; the random id of a call already shows where a turn with calls comes from.
CASES_BY_WORDS: dict[str, Callable[[Request, Part], Request]] = {
    "another tool": lambda own, said: msgspec.structs.replace(own, tool="Looks up secrets."),
}


def cases(kind: str) -> list[str]:
    return [*CASES, *(CASES_BY_WORDS if kind == "text" else ())]


async def conversation(ask: Callable[..., Any], client: Any, kind: str, session: str) -> tuple[Request, Part]:
    """Ask until the turn with the secret thought; the owner's next request, and that turn."""
    opening = Request(parts=(Part("user", "My pin is 1234."),), session=session)
    noted = await ask(client, opening)
    second = msgspec.structs.replace(opening, parts=(*opening.parts, noted, Part("user", "Say it.")))
    said = await ask(client, second)
    assert bool(said.call_id) == (kind == "call")
    after = Part("result", "None left.", said.call_id) if kind == "call" else Part("user", "And now?")
    return msgspec.structs.replace(second, parts=(*second.parts, said, after)), said


@pytest.mark.parametrize("session", ["", "s1"], ids=["no session", "session"])
@pytest.mark.parametrize("store", ["memory", pytest.param("sqlite", marks=pytest.mark.slow), "redis"])
@pytest.mark.parametrize("kind", ["text", "call"])
@pytest.mark.parametrize("api", APIS)
async def test_no_thought_enters_another_conversation(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    redis_url: str,
    api: str,
    kind: str,
    store: str,
    session: str,
) -> None:
    prompts: list[Prompt] = []
    build = ModelRuntime.build

    async def watched(self: ModelRuntime, *given: Any) -> Prompt:
        prompts.append(await build(self, *given))
        return prompts[-1]

    monkeypatch.setattr(ModelRuntime, "build", watched)
    client = await serve(
        {"text": "Harmless.\n</think>\n\nNoted."},
        {"text": THOUGHT + ("Done." if kind == "text" else CALL)},
        {"text": "</think>\n\nLater."},
        template=str(TEMPLATE),
        dialect="qwen3_coder",
        history_thinking="keep",
        store={"memory": "memory", "sqlite": f"sqlite:{tmp_path}/store.db", "redis": redis_url}[store],
    )
    tokenizer = next(iter(client.gateway.runtimes)).tokenizer
    ask = APIS[api]

    async def leaks(request: Request) -> bool:
        await ask(client, request)
        return SECRET in tokenizer.decode(list(prompts[-1].ids))

    own, said = await conversation(ask, client, kind, session)
    found = [name for name in cases(kind) if await leaks((CASES | CASES_BY_WORDS)[name](own, said))]
    assert found == []
    assert await leaks(own), "the owner's own turn is not recalled"
