"""Turns replay exactly although the process that served them is gone: every family's template, with the habits of real
clients, on a gateway that forgets everything after each turn.

Messages and Responses have only what the client carries; Chat Completions has the turn store that replicas share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.client_habits import APIS, uneven_tokens, written
from tests.gateway.conftest import Client, Serve
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import detect
from turnwire.prompts.recall.recall import RecallCache
from turnwire.prompts.recall.store import MemoryTurnStore
from turnwire.prompts.replay.assembled import AssembledPromptCache

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


def difference(client: Client, before: list[int], now: list[int]) -> str:
    """Where `now` does not go on from `before`; empty where it does."""
    if now[: len(before)] == before:
        return ""
    decode = client.gateway.runtimes[0].tokenizer.decode
    at = next((place for place, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), len(now))
    around = slice(max(0, at - 12), at + 12)
    return f"{decode(now[around])!r} for {decode(before[around])!r}"


@pytest.mark.parametrize("cut", [pytest.param("even", marks=pytest.mark.slow), "uneven"])
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
    lines = written(path)
    with uneven_tokens() if uneven else nullcontext():
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
