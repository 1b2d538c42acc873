"""Turns replay exactly although the process that served them is gone: every family's template, with the habits of real
clients, on a gateway that forgets everything after each turn.

Messages and Responses have only what the client carries; Chat Completions has the turn store that replicas share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import Client, Serve
from turnwire.engines.scripted.script import Script
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import detect
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.recall.recall import RecallCache
from turnwire.prompts.recall.store import MemoryTurnStore
from turnwire.prompts.replay.assembled import AssembledPromptCache
from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.templates.template import ChatTemplate
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Block, Message, ReasoningBlock, TextBlock, Tool, ToolCallBlock

FOLDER = Path(__file__).parents[1] / "prompts" / "family_templates"
DIALECTS = {
    "command": "cohere_command3",
    "deepseek-r1": "deepseek_v3_1",
    "deepseek-v4": "deepseek_v4",
    "functionary": "functionary_v3_2",
    "gemma2": "plain",
    "gemma4": "gemma4",
    "glm4.7": "glm47",
    "gpt-oss": "harmony",
    "kimi-k2": "kimi_k2",
    "kimi-k2-thinking": "kimi_k2",
    "lfm2": "plain",
    "llama3": "llama3_json",
    "minimax-m2": "minimax_m2",
    "ministral": "mistral",
    "mistral": "mistral",
    "nemotron3": "nemotron_v3",
    "qwen2.5": "hermes",
    "qwen3": "qwen3",
    "qwen3.5": "qwen3_coder",
    "solar": "solar_open",
}
# Templates that show no calls, or in a form that no dialect reads: their turns are text.
WITHOUT_CALLS = {"deepseek-r1", "gemma2", "lfm2"}
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


async def messages(client: Client, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Claude Code: thoughts and signatures verbatim, inputs normalised, blank text dropped."""
    body = {
        "model": "test-model",
        "max_tokens": 999,
        "messages": [{"role": "user", "content": "Go."}, *history],
        "tools": [{"name": "Write", "description": "Writes.", "input_schema": SCHEMA}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    status, answer = await client.post("/v1/messages", body)
    assert status == 200, answer
    content = [block for block in answer["content"] if block["type"] != "text" or block["text"].strip()]
    calls = [block for block in content if block["type"] == "tool_use"]
    for block in calls:
        block["input"] = as_javascript(json.dumps(block["input"]), normalised=True)
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"} for call in calls]
    said = [{"role": "assistant", "content": content}] if content else []
    return [*said, {"role": "user", "content": results or "And now?"}]


async def responses(client: Client, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenClaw: encrypted reasoning with empty summaries and without ids, arguments written again."""
    tool = {"type": "function", "name": "Write", "description": "Writes.", "parameters": SCHEMA}
    body = {
        "model": "test-model",
        "input": [{"role": "user", "content": "Go."}, *history],
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
            items.append({"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]})
        elif item["type"] == "function_call":
            arguments = json.dumps(as_javascript(item["arguments"]), separators=(",", ":"))
            items.append({key: item[key] for key in ("type", "call_id", "name")} | {"arguments": arguments})
            results.append({"type": "function_call_output", "call_id": item["call_id"], "output": "ok"})
        else:
            items.append({"type": "message", "role": "assistant", "content": item["content"]})
    return [*items, *(results or [{"role": "user", "content": "And now?"}])]


async def chat(client: Client, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The OpenAI SDK by hand: thoughts dropped, ids stripped, arguments written again."""
    function = {"name": "Write", "description": "Writes.", "parameters": SCHEMA}
    body = {
        "model": "test-model",
        "messages": [{"role": "user", "content": "Go."}, *history],
        "tools": [{"type": "function", "function": function}],
        "reasoning_effort": "medium",
    }
    status, answer = await client.post("/v1/chat/completions", body)
    assert status == 200, answer
    message = answer["choices"][0]["message"]
    calls = message.get("tool_calls") or []
    for call in calls:
        call["id"] = "".join(filter(str.isalnum, call["id"]))
        call["function"]["arguments"] = json.dumps(as_javascript(call["function"]["arguments"]))
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    said = {"role": "assistant", "content": message["content"]} | ({"tool_calls": calls} if calls else {})
    return [said, *(results or [{"role": "user", "content": "And now?"}])]


APIS: dict[str, Callable[[Client, list[dict[str, Any]]], Any]] = {
    "messages": messages,
    "responses": responses,
    "chat": chat,
}


def difference(client: Client, before: list[int], now: list[int]) -> str:
    """Where `now` does not go on from `before`; empty where it does."""
    if now[: len(before)] == before:
        return ""
    decode = client.gateway.runtimes[0].tokenizer.decode
    at = next((place for place, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), len(now))
    around = slice(max(0, at - 12), at + 12)
    return f"{decode(now[around])!r} for {decode(before[around])!r}"


@pytest.mark.parametrize("cut", ["even", "uneven"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("family", sorted(DIALECTS))
async def test_turns_replay_exactly_on_a_gateway_that_has_forgotten_them(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, family: str, api: str, cut: str
) -> None:
    pairs = await replayed(
        serve, monkeypatch, FOLDER / f"{family}.jinja", DIALECTS[family], api, uneven=cut == "uneven"
    )
    assert bool(pairs) == (family not in WITHOUT_CALLS)


def real_templates() -> list[Path]:
    given = os.environ.get("TURNWIRE_SHARED")
    places = [Path(given)] if given else [parent / "shared" for parent in Path(__file__).resolve().parents]
    return next((sorted((p / "templates").glob("*.jinja")) for p in places if (p / "templates").is_dir()), [])


def detected(path: Path) -> str:
    dialect = detect("", path.read_text(encoding="utf-8")).dialect
    return dialect.name if dialect else "plain"


@pytest.mark.slow
@pytest.mark.parametrize("api", ["messages", "responses"])
@pytest.mark.parametrize("path", real_templates() or [None], ids=lambda path: path.stem if path else "absent")
async def test_real_templates_where_they_are_at_hand(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: Path | None, api: str
) -> None:
    if path is None:
        pytest.skip("no folder of real templates beside the project")
    await replayed(serve, monkeypatch, path, detected(path), api, uneven=True)


async def replayed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: Path, dialect: str, api: str, *, uneven: bool
) -> int:
    """Play the turns and check every pair inside the tool loop; how many there were."""
    turns: list[tuple[Sequence[int], Sequence[int]]] = []
    remember = ModelRuntime.remember

    def watched(self: ModelRuntime, turn: Any) -> None:
        remember(self, turn)
        turns.append((list(turn.prompt.ids), list(turn.outcome.output_ids)))

    monkeypatch.setattr(ModelRuntime, "remember", watched)
    monkeypatch.setattr(RecallCache, "get", lambda *_: None)
    monkeypatch.setattr(AssembledPromptCache, "get", lambda *_: None)
    if api != "chat":
        monkeypatch.setattr(MemoryTurnStore, "get", lambda *_: ())
    if uneven:
        load = Script.load.__func__
        monkeypatch.setattr(
            Script, "load", classmethod(lambda cls, path, tokenizer: load(cls, path, Uneven(tokenizer)))
        )
    lines = written(path)
    client = await serve(*({"text": line} for line in lines), template=str(path), dialect=dialect)

    history: list[dict[str, Any]] = []
    kinds: list[bool] = []
    for _ in lines:
        more = await APIS[api](client, history)
        history += more
        kinds.append("And now?" not in json.dumps(more))
    assert len(turns) == len(lines)
    for number, looping in enumerate(kinds[:-1]):
        if not looping:
            continue
        before = [*turns[number][0], *turns[number][1]]
        assert difference(client, before, list(turns[number + 1][0])) == ""
    return sum(kinds[:-1])


@pytest.mark.parametrize("rest", ["", "\n\n"], ids=["nothing after it", "blanks after it"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("family", ["nemotron3", "qwen3.5", "glm4.7", "deepseek-v4"])
async def test_a_turn_that_only_thought_is_replayed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, family: str, api: str, rest: str
) -> None:
    turns: list[list[int]] = []
    remember = ModelRuntime.remember

    def watched(self: ModelRuntime, turn: Any) -> None:
        remember(self, turn)
        turns.append([*turn.prompt.ids, *turn.outcome.output_ids])

    monkeypatch.setattr(ModelRuntime, "remember", watched)
    monkeypatch.setattr(RecallCache, "get", lambda *_: None)
    monkeypatch.setattr(AssembledPromptCache, "get", lambda *_: None)
    if api != "chat":
        monkeypatch.setattr(MemoryTurnStore, "get", lambda *_: ())
    client = await serve(
        {"text": f"Nothing to say.\n</think>{rest}"},
        {"text": "Still nothing.</think>Well."},
        template=str(FOLDER / f"{family}.jinja"),
        dialect=DIALECTS[family],
        history_thinking="keep",
    )
    history: list[dict[str, Any]] = []
    history += await APIS[api](client, history)
    await APIS[api](client, history)
    assert difference(client, turns[0], turns[1]) == ""
