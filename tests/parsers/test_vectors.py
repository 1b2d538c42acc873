"""Runs the shared vectors, where they are at hand, in every delivery, and counts per family what holds.

`python tests/parsers/test_vectors.py [family ...]` prints the failures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
from running import Turn, cut, events_of, merge, random_cut
from tests.shared_data import needs_shared, shared_folder

from turnwire.parsers import Dialect, Start, UnknownDialect, resolve, start_state
from turnwire.turns import Tool

# Vectors judged wrong, by the reason.
BETWEEN = "text between two calls is the model's text; these peers drop it"
COMPLETE = "the arguments were complete when the output ended or the section closed, so the call is kept and reported"
CUT = "a call cut inside a value must not be dispatched"
REASONED = "reasoning is reported as reasoning; moving it into the answer is a wish of one server's settings"
HIDDEN = "the call stage is not exercised, yet the markup is expected to vanish"
PIPELINE = "framing is kept as text for a second stage of the peer's pipeline, though the message is to the user"
UNROUTED = "text without a channel is shown as text; these peers drop it"
MARKUP = "a call that was cut is reported as cut; its markup is not text"
JUDGED_WRONG: dict[str, str] = {
    "deepseek_v3-e1a20052dc": BETWEEN,
    "deepseek_v3_1-3d0078da96": BETWEEN,
    "deepseek_v4-a94f7cd624": BETWEEN,
    "hermes-6025fe731d": BETWEEN,
    "nemotron_deci-84c35c5d93": BETWEEN,
    "nemotron_v3-e43c05d9b2": BETWEEN,
    "qwen3_coder-5190484b7c": BETWEEN,
    "deepseek_v3_1-120e22b06b": COMPLETE,
    "hermes-909aab4e09": COMPLETE,
    "kimi_k2-3f358721fe": COMPLETE,
    "phi4_mini-d5b20acdac": COMPLETE,
    "pythonic-75520c4431": COMPLETE,
    "pythonic-bdd3f7d41b": COMPLETE,
    "pythonic-b618ce310a": COMPLETE,
    "pythonic-8d926fc620": MARKUP,
    "pythonic-c81eff7f76": MARKUP,
    "pythonic-54d2fe0e26": "a space between the parentheses makes it no less a call",
    "lfm2-44c9e6a8a7": BETWEEN,
    "gemma4-1344ff4dce": BETWEEN,
    "minicpm5-99be5ef729": COMPLETE,
    "minicpm5-993806615b": "a tokenizer's marks for spaces are taken back by who detokenizes; they may be meant",
    "minicpm5-e44b533bae": "an argument the schema does not know is passed on: who called must hear of it",
    "minicpm5-e72f47195a": "of an argument given twice the last counts, and it is reported",
    "dots-af0f9faa9f": "what is not a call stays in the text as it was written, its markers too",
    "gpt_oss-63cc596ab6": COMPLETE,
    "apriel_1_6-504cc72b0e": "a sentence of the prompt is expected as part of the model's thought",
    "inkling-17d461a3d6": PIPELINE,
    "inkling-2586fc6b05": "a call that is left in the text stays whole, with the marker that opens its message",
    "muse_glimmer-992da3feb6": PIPELINE,
    "muse_glimmer-be0c1d8a1a": PIPELINE,
    "muse_glimmer-fb08f5c49b": PIPELINE,
    "gpt_oss-7f9dcd7cd3": COMPLETE,
    "gpt_oss-b26c929d73": UNROUTED,
    "gpt_oss-c2c98b64e5": UNROUTED,
    "gpt_oss-7b23397063": "the marker that ends a message is expected as text",
    "deepseek_v3_2-6d0c0be125": "the value ends where its call does; a call without it would be worse",
    "qwen3_coder-5dcfa54d85": CUT,
    "ling3-62943d622c": REASONED,
    "nemotron_v3-c67d0383d8": REASONED,
    "deepseek_v4-3971df330d": HIDDEN,
    "seed_oss-7752877624": HIDDEN,
    "kimi_k2-e552b30d1e": "the test injects an exception into the peer's parser; the second call is well-formed",
    "nemotron_deci-09f9ad6348": "two complete sections hold two calls; the peer drops both",
}


def vectors() -> Iterator[dict[str, Any]]:
    place = shared_folder("vectors")
    for path in sorted(place.glob("[!_]*.jsonl")) if place else []:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def dialect_of(vector: dict[str, Any]) -> Dialect:
    """The family's dialect; a stage that the vector does not exercise is off."""
    dialect = resolve(vector["family"])
    if vector.get("parser_tool") is None:
        dialect = dialect.without_calls()
    if vector.get("parser_reasoning") is None:
        dialect = dialect.without_reasoning()
    return dialect


def tools_of(vector: dict[str, Any]) -> list[Tool]:
    functions = [tool.get("function", tool) for tool in vector.get("tools") or []]
    return [Tool(name=f["name"], schema=f.get("parameters") or {}) for f in functions if f.get("name")]


def start_of(vector: dict[str, Any], dialect: Dialect) -> Start:
    init = vector.get("init") or {}
    state = init.get("starts_in")
    if init.get("generation_prompt") is not None and state is None:
        return start_state(init["generation_prompt"], dialect)
    if state == "message_header":
        return Start("header")
    return Start("reasoning") if state == "reasoning" else Start()


def flat(text: str | None) -> str:
    return " ".join((text or "").split())


def complaints(vector: dict[str, Any], turn: Turn) -> list[str]:
    """What of the expectation does not hold for `turn`."""
    expect, match = vector["expect"], vector.get("match") or {}
    found: list[str] = []
    if vector.get("parser_reasoning") is not None or expect.get("reasoning"):
        said = flat(" ".join(block.text for block in turn.of("reasoning")))
        if said.replace(" ", "") != flat(expect.get("reasoning")).replace(" ", ""):
            found.append(f"reasoning {said!r} instead of {flat(expect.get('reasoning'))!r}")
    if match.get("content") != "ignore":
        said = flat(" ".join(block.text for block in turn.of("text")))
        if said.replace(" ", "") != flat(expect.get("content")).replace(" ", ""):
            found.append(f"content {said!r} instead of {flat(expect.get('content'))!r}")
    wanted = expect.get("tool_calls") or []
    calls = [block for block in turn.of("tool_call") if not block.malformed]
    if [call.name for call in calls] != [call["name"] for call in wanted]:
        found.append(f"calls {[c.name for c in turn.of('tool_call')]} instead of {[c['name'] for c in wanted]}")
    else:
        for call, want in zip(calls, wanted, strict=True):
            given, asked = json.loads(call.text), want.get("arguments")
            if isinstance(asked, str):
                asked = json.loads(asked)
            if match.get("arguments") == "subset":
                given = part(given, asked)
            if not same(given, asked):
                found.append(f"arguments {given!r} instead of {asked!r}")
    if not found and expect.get("events") and match.get("content") != "ignore":
        order = [(b.kind, b.name or flat(b.text)) for b in turn.blocks if not b.malformed]
        asked_order = [(e["kind"], e.get("name") or flat(e.get("text"))) for e in expect["events"]]
        if order != asked_order:
            found.append(f"order {order} instead of {asked_order}")
    return found


def part(given: Any, asked: Any) -> Any:
    """What of `given` was asked for: the same keys, and as many items."""
    if isinstance(given, dict) and isinstance(asked, dict):
        return {key: part(given.get(key), asked[key]) for key in asked}
    if isinstance(given, list) and isinstance(asked, list):
        return [part(left, right) for left, right in zip(given, asked, strict=False)]
    return given


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 5 is 5.0, but true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def run(vector: dict[str, Any]) -> list[str]:
    """Why the vector fails; nothing if it holds in every delivery."""
    try:
        dialect = dialect_of(vector)
    except UnknownDialect as unknown:
        return [str(unknown)]
    text, tools, start = vector["text"], tools_of(vector), start_of(vector, dialect)
    cuts = [[text], *(cut(text, size) for size in (1, 2, 3, 7)), *(random_cut(text, seed) for seed in range(3))]
    if vector.get("chunks"):
        cuts.append(vector["chunks"])
    whole: Turn | None = None
    for pieces in cuts:
        try:
            turn = merge(events_of(dialect, pieces, tools, start), text)
        except AssertionError as broken:
            return [f"law broken: {broken}"]
        if whole is None:
            whole = turn
            found = complaints(vector, turn)
            if found:
                return found
        elif turn != whole:
            return [f"cut {pieces!r} gives another turn: {turn} {whole}"]
    return []


def known(family: str) -> bool:
    try:
        resolve(family)
    except UnknownDialect:
        return False
    return True


FAMILIES: dict[str, list[dict[str, Any]]] = {}
for _vector in vectors():
    FAMILIES.setdefault(_vector["family"], []).append(_vector)


@needs_shared("vectors")
@pytest.mark.parametrize("family", [family for family in sorted(FAMILIES) if known(family)] or ["every family"])
def test_vectors(family: str) -> None:
    failed = {v["id"]: found for v in FAMILIES.get(family, []) if v["id"] not in JUDGED_WRONG and (found := run(v))}
    assert not failed, f"{len(failed)} of {len(FAMILIES[family])} fail: {failed}"


def main(wanted: list[str]) -> None:
    passed = total = 0
    for family, rows in sorted(FAMILIES.items()):
        if wanted and family not in wanted:
            continue
        good = 0
        for vector in rows:
            found = run(vector)
            good += not found
            if found and wanted:
                print(vector["id"], "JUDGED WRONG" if vector["id"] in JUDGED_WRONG else "", vector.get("tags"))
                print("   text:", repr(vector["text"]))
                print("   init:", vector.get("init"), "tools:", [t.name for t in tools_of(vector)])
                print("   notes:", vector.get("impls"), vector.get("source"))
                for line in found:
                    print("   *", line)
        print(f"{family:28} {good:4} of {len(rows):4}")
        passed, total = passed + good, total + len(rows)
    print(f"{'all':28} {passed:4} of {total:4}")


if __name__ == "__main__":
    main(sys.argv[1:])
