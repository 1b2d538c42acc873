"""Each rule can fail: a gateway that keeps all of them is spoilt in one way, and the rule says so."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance.liar import Lie, lying
from tests.conformance.listening import Listening, listening_gateway
from turnwire.conformance.rules import errors
from turnwire.conformance.rules.replay import respaced
from turnwire.conformance.rules.table import RULES
from turnwire.conformance.runner import run
from turnwire.conformance.words import ApiName, Word

pytestmark = pytest.mark.asyncio(loop_scope="module")


def without(*words: str) -> Callable[[list[str]], list[str]]:
    """Frames that hold none of the words."""
    return lambda frames: [frame for frame in frames if not any(word in frame for word in words)]


def twice(word: str) -> Callable[[list[str]], list[str]]:
    return lambda frames: [copy for frame in frames for copy in ([frame, frame] if word in frame else [frame])]


def written(old: str, new: str) -> Callable[[list[str]], list[str]]:
    return lambda frames: [re.sub(old, new, frame) for frame in frames]


def everywhere(old: str, new: str) -> dict[str, Any]:
    return {"frames": written(old, new), "body": lambda text: re.sub(old, new, text)}


def forgetful(body: dict[str, Any]) -> dict[str, Any]:
    """The history as a server reads it that keeps neither thoughts nor the model's own ids and spelling."""
    for message in body["messages"]:
        message.pop("reasoning_content", None)
        message.pop("reasoning", None)
        for call in message.get("tool_calls") or ():
            call["id"] = "x" + call["id"]
            call["function"]["arguments"] = call["function"]["arguments"].replace(":", " :")
        if "tool_call_id" in message:
            message["tool_call_id"] = "x" + message["tool_call_id"]
    return body


def nonce() -> Callable[[dict[str, Any]], dict[str, Any]]:
    count = iter(range(1000))

    def asked(body: dict[str, Any]) -> dict[str, Any]:
        body["messages"][0]["content"] = f"request {next(count)}: {body['messages'][0]['content']}"
        return body

    return asked


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: json.loads(json.dumps(body).replace(old, new))


def strict(body: dict[str, Any]) -> dict[str, Any]:
    """A server that chokes on arguments which are not JSON."""
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                return {}
    return body


def shortened(body: dict[str, Any]) -> dict[str, Any]:
    for message in body["messages"]:
        if isinstance(message.get("content"), str):
            message["content"] = message["content"][:500]
    return body


LIES: list[tuple[str, ApiName, Word, Lie]] = [
    ("wire.order", "chat", "broken", Lie(frames=without("[DONE]"))),
    ("wire.order", "messages", "broken", Lie(frames=lambda frames: [frames[1], frames[0], *frames[2:]])),
    ("wire.order", "responses", "broken", Lie(frames=without("response.created"))),
    ("wire.fields", "chat", "broken", Lie(frames=written(r'"id":"chatcmpl[^"]*",', ""))),
    ("wire.fields", "messages", "broken", Lie(frames=written('"model":"test-model",?', ""))),
    ("wire.fields", "responses", "broken", Lie(frames=written(r'"sequence_number":\d+,?', ""))),
    ("wire.finish", "chat", "broken", Lie(frames=twice('"finish_reason":"'))),
    ("wire.finish", "messages", "broken", Lie(frames=twice("event: message_delta"))),
    ("wire.finish", "responses", "broken", Lie(frames=without("event: response.completed"))),
    ("wire.stops", "chat", "broken", Lie(frames=written('"tool_calls"', '"stop"'))),
    ("wire.stops", "messages", "broken", Lie(frames=written('"max_tokens"', '"end_turn"'))),
    ("wire.stops", "responses", "broken", Lie(frames=written('"incomplete"', '"completed"'))),
    ("wire.counts", "chat", "broken", Lie(frames=written(r'"completion_tokens":\d+', '"completion_tokens":3'))),
    (
        "wire.counts",
        "messages",
        "broken",
        Lie(body=lambda text: re.sub(r'"input_tokens":\d+', '"input_tokens":7', text)),
    ),
    ("wire.agree", "chat", "broken", Lie(body=lambda text: text.replace("Hello", "Hallo"))),
    ("wire.agree", "responses", "broken", Lie(frames=lambda frames: [*frames[:-1], frames[-1].replace("Hello", "Hi")])),
    ("wire.ids", "chat", "broken", Lie(**everywhere(r'"id":"chatcmpl[^"]*"', '"id":"chatcmpl-0"'))),
    ("wire.ids", "messages", "broken", Lie(**everywhere(r'"toolu[^"]*"', '"toolu_0"'))),
    ("wire.unicode", "chat", "broken", Lie(frames=written("🦜", "\N{REPLACEMENT CHARACTER}"))),
    ("wire.errors", "messages", "broken", Lie(status=500)),
    ("wire.errors", "chat", "adapted", Lie(body=lambda text: '{"detail": "wrong"}' if '"error"' in text else text)),
    ("thinking.streamed", "chat", "broken", Lie(frames=written('"reasoning(_content)?":', '"content":'))),
    ("thinking.streamed", "responses", "broken", Lie(frames=without("reasoning"))),
    ("thinking.replayed", "chat", "broken", Lie(asked=forgetful)),
    ("thinking.interleaved", "chat", "broken", Lie(asked=forgetful)),
    ("calls.order", "chat", "broken", Lie(frames=written("Then", ""))),
    ("calls.early", "chat", "adapted", Lie(late=True)),
    ("calls.early", "messages", "adapted", Lie(late=True)),
    ("calls.streamed", "responses", "adapted", Lie(late=True)),
    ("calls.streamed", "chat", "broken", Lie(frames=written("lazy", "eager"))),
    ("calls.parallel", "messages", "broken", Lie(frames=written(r'"toolu[^"]*"', '"toolu_0"'))),
    ("replay.exact", "chat", "broken", Lie(asked=forgetful)),
    ("replay.text", "chat", "broken", Lie(asked=forgetful)),
    ("replay.spelling", "chat", "broken", Lie(asked=forgetful)),
    (
        "replay.stored",
        "responses",
        "broken",
        Lie(asked=lambda body: {key: value for key, value in body.items() if key != "previous_response_id"}),
    ),
    ("cache.stable", "chat", "broken", Lie(asked=nonce())),
    ("cache.volatile", "messages", "unsupported", Lie(asked=renamed("x-anthropic-billing-header", "x-another-header"))),
    (
        "tokens.counted",
        "messages",
        "broken",
        Lie(body=lambda text: text.replace('{"input_tokens":', '{"input_tokens":9')),
    ),
    ("errors.tool", "messages", "broken", Lie(asked=renamed("the station does not answer", "fine"))),
    ("errors.arguments", "chat", "broken", Lie(asked=strict, status=500)),
    ("errors.arguments", "chat", "unsupported", Lie(asked=strict)),
    ("errors.overflow", "chat", "broken", Lie(asked=shortened)),
    ("errors.cancelled", "chat", "broken", Lie(stubborn=True)),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sound(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Listening]]:
    async with listening_gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.mark.parametrize(
    ("rule", "api", "word", "lie"), LIES, ids=[f"{rule}-{api}-{word}" for rule, api, word, _ in LIES]
)
async def test_a_broken_rule_is_seen(
    rule: str,
    api: ApiName,
    word: Word,
    lie: Lie,
    sound: tuple[str, Listening],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(errors, "_PATIENCE", 0.3)
    upstream, stand_in = sound
    async with lying(upstream, lie) as url:
        report = await run(url, apis=[api], stand_in=stand_in, only=[rule])
    (cell,) = report.cells
    assert (cell.word, cell.rule) == (word, rule), (cell.reason, cell.evidence)


async def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, *_ in LIES} == {rule.name for rule in RULES}


async def test_what_is_broken_is_judged_twice_where_that_is_asked_for(sound: tuple[str, Listening]) -> None:
    upstream, stand_in = sound
    # The first document is judged, the second is judged again.
    documents = itertools.count(1)

    def once(text: str) -> str:
        return text.replace("Hello", "Hallo") if "Hello" in text and next(documents) == 1 else text

    async with lying(upstream, Lie(body=lambda text: text.replace("Hello", "Hallo"))) as url:
        always = await run(url, apis=["chat"], stand_in=stand_in, only=["wire.agree"], again=True)
    async with lying(upstream, Lie(body=once)) as url:
        sometimes = await run(url, apis=["chat"], stand_in=stand_in, only=["wire.agree"], again=True)
    assert (always.cells[0].word, always.cells[0].evidence[-1]) == ("broken", "judged twice: the same")
    assert sometimes.cells[0].word == "broken"
    assert sometimes.cells[0].reason.endswith("(in one of two times)")
    assert sometimes.cells[0].evidence[-1].startswith("judged again, with other turns: preserved")


@pytest.mark.parametrize(
    ("said", "read", "only_space"),
    [
        ('\n\n<tool_call>{"a":1}', '\n\n\n<tool_call>{"a": 1}<|im_end|>', True),
        ("I will.", "I will<|im_end|>", False),
        ("<tool_call>", "<|im_end|>\n<|im_start|>assistant\n<tool_call>", False),
    ],
)
async def test_only_white_space_is_adapted(said: str, read: str, only_space: bool) -> None:
    assert respaced(said, read) is only_space
