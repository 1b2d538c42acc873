"""The operator's switches over prompts, and what of a request reaches them: tool order, system turns, old thoughts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Client, Serve

TOOLS = [
    {"name": name, "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}}
    for name in ("write", "read")
]
FIRST = {"role": "user", "content": "My words."}


def request(**over: Any) -> dict[str, Any]:
    return {"model": "test-model", "max_tokens": 64, "messages": [FIRST]} | over


async def prompt(client: Client, folder: Path, **over: Any) -> str:
    """The prompt that a request led to."""
    status, answer = await client.post("/v1/messages", request(**over))
    assert status == 200, answer
    text: str = json.loads((folder / "turns.jsonl").read_text().splitlines()[-1])["prompt_text"]
    return text


@pytest.mark.parametrize(("order", "first"), [("sent", "write"), ("canonical", "read")])
async def test_tools_stand_as_sent_or_sorted(serve: Serve, tmp_path: Path, order: str, first: str) -> None:
    client = await serve({"text": "Hi."}, record=str(tmp_path / "r"), tool_order=order)
    text = await prompt(client, tmp_path / "r", tools=TOOLS)
    other = "read" if first == "write" else "write"
    assert text.index(f'"{first}"') < text.index(f'"{other}"')
    assert "cache_control" not in text
    again = await prompt(client, tmp_path / "r", tools=TOOLS[::-1])
    assert (again == text) == (order == "canonical")


@pytest.mark.parametrize("hoist", [True, False])
async def test_the_first_system_turn_moves_before_the_users_words(serve: Serve, tmp_path: Path, hoist: bool) -> None:
    client = await serve({"text": "Hi."}, record=str(tmp_path / "r"), hoist_system=hoist)
    text = await prompt(client, tmp_path / "r", messages=[FIRST, {"role": "system", "content": "The environment."}])
    assert (text.index("The environment.") < text.index("My words.")) == hoist


OLD = [
    FIRST,
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Old thought.", "signature": "x"}]},
    {"role": "user", "content": "More."},
]
OLD[1]["content"].append({"type": "text", "text": "Old answer."})  # type: ignore[union-attr]
CLEAR = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}
KEEP = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}


@pytest.mark.parametrize(
    ("operator", "asked", "kept"),
    [
        (None, {}, True),
        ("keep", {}, True),
        ("model", {}, True),
        ("drop", {}, False),
        ("drop", {"context_management": KEEP}, True),
        ("model", {"chat_template_kwargs": {"preserve_thinking": False}}, False),
    ],
)
async def test_old_thoughts_are_kept_as_operator_and_request_say(
    serve: Serve, tmp_path: Path, operator: str | None, asked: dict[str, Any], kept: bool
) -> None:
    client = await serve({"text": "Hi."}, record=str(tmp_path / "r"), history_thinking=operator)
    text = await prompt(client, tmp_path / "r", messages=OLD, thinking={"type": "adaptive"}, **asked)
    assert ("Old thought." in text) == kept
    assert "Old answer." in text


async def test_clear_thinking_leaves_the_last_turns_only(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "Hi."}, record=str(tmp_path / "r"))
    newer = json.loads(json.dumps(OLD[1:]).replace("Old", "New"))
    text = await prompt(
        client,
        tmp_path / "r",
        messages=[*OLD, *newer],
        thinking={"type": "adaptive"},
        context_management=CLEAR,
    )
    assert "Old thought." not in text
    assert "New thought." in text


@pytest.mark.parametrize(("effort", "said"), [("low", "True True"), ("max", "True None"), ("minimal", "True True")])
async def test_a_profile_says_what_effort_means_to_its_template(
    serve: Serve, tmp_path: Path, effort: str, said: str
) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}{{ enable_thinking }} {{ low_effort | default(none) }}"
    (tmp_path / "own.jinja").write_text(source)
    model = {"model": "nvidia/nemotron-3-super", "template": str(tmp_path / "own.jinja"), "dialect": "auto"}
    client = await serve({"text": "Hi."}, record=str(tmp_path / "r"), **model)
    text = await prompt(client, tmp_path / "r", model=model["model"], output_config={"effort": effort})
    assert text.endswith(said)


async def test_responses_reasoning_switches_thinking(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "Hi."}, record=str(tmp_path / "r"))
    prompts = {}
    for effort in ("high", "none"):
        body = {"model": "test-model", "input": "Hi", "store": False, "reasoning": {"effort": effort}}
        status, _ = await client.post("/v1/responses", body)
        assert status == 200
        prompts[effort] = json.loads((tmp_path / "r/turns.jsonl").read_text().splitlines()[-1])["prompt_text"]
    assert prompts["high"].endswith("<think>\n")
    assert prompts["none"].endswith("</think>\n\n")
