"""A turn that the client began and the model went on with is read again as it was: the client's words and the model's
own tokens after them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.client_habits import uneven_tokens
from tests.gateway.conftest import Client, Serve
from tests.gateway.test_replicas import DIALECTS, FOLDER, difference
from turnwire.gateway.turns.runtime import ModelRuntime

BEGUN, SAID = "The sky", " is  blue today, I think."
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}


async def asked(client: Client, api: str, messages: list[dict[str, Any]]) -> str:
    """The answer's text."""
    body: dict[str, Any] = {"model": "test-model"}
    body |= {"input": messages, "store": False} if api == "responses" else {"messages": messages, "max_tokens": 99}
    status, answer = await client.post(PATHS[api], body)
    assert status == 200, answer
    if api == "chat":
        return str(answer["choices"][0]["message"]["content"])
    said = [item for item in answer.get("output", ()) if item["type"] == "message"]
    blocks = answer["content"] if api == "messages" else [block for item in said for block in item["content"]]
    return "".join(block["text"] for block in blocks if "text" in block)


@pytest.mark.parametrize("apart", [False, True], ids=["one message", "two messages"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("family", ["qwen3", "qwen2.5", "nemotron3"])
async def test_a_turn_that_the_client_began_is_read_again_exactly(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, family: str, api: str, apart: bool
) -> None:
    turns: list[tuple[list[int], list[int]]] = []
    remember = ModelRuntime.remember

    def watched(self: ModelRuntime, turn: Any) -> Any:
        turns.append((list(turn.prompt.ids), list(turn.outcome.output_ids)))
        return remember(self, turn)

    monkeypatch.setattr(ModelRuntime, "remember", watched)
    with uneven_tokens():
        client = await serve(
            {"text": SAID},
            template=str(FOLDER / f"{family}.jinja"),
            dialect=DIALECTS[family],
            history_thinking="keep",
        )
    opening = [{"role": "user", "content": "What colour?"}, {"role": "assistant", "content": BEGUN}]
    said = await asked(client, api, opening)
    more = [*opening, {"role": "assistant", "content": said}]
    if not apart:
        more = [opening[0], {"role": "assistant", "content": BEGUN + said}]
    await asked(client, api, [*more, {"role": "user", "content": "And now?"}])
    assert difference(client, [*turns[0][0], *turns[0][1]], turns[1][0]) == ""


async def test_an_edited_turn_is_shown_as_the_client_has_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []
    remember = ModelRuntime.remember

    def watched(self: ModelRuntime, turn: Any) -> Any:
        prompts.append(self.tokenizer.decode(turn.prompt.ids))
        return remember(self, turn)

    monkeypatch.setattr(ModelRuntime, "remember", watched)
    client = await serve({"text": SAID}, template=str(FOLDER / "qwen2.5.jinja"), dialect="hermes")
    opening = [{"role": "user", "content": "What colour?"}, {"role": "assistant", "content": BEGUN}]
    said = await asked(client, "chat", opening)
    edited = {"role": "assistant", "content": "The sea" + said}
    await asked(client, "chat", [opening[0], edited, {"role": "user", "content": "And now?"}])
    assert "The sea is  blue" in prompts[1]
    assert "The sky" not in prompts[1]
