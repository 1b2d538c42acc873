"""Tools that a chat template does not show: the client is told, and no list claims them."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.conftest import Serve

PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant"
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}


async def test_tools_that_the_model_cannot_see_are_noted_and_not_claimed(serve: Serve, tmp_path: Path) -> None:
    template = tmp_path / "plain.jinja"
    template.write_text(PLAIN)
    client = await serve({"text": "Hi."}, template=str(template), dialect="hermes")
    body = {"model": "test-model", "messages": [{"role": "user", "content": "Hi."}]}
    for tools, noted in (([TOOL], True), ([], False)):
        async with client.session.post(client.base + "/v1/chat/completions", json=body | {"tools": tools}) as answer:
            assert answer.status == 200
            assert ("tools.unseen" in answer.headers.get("x-turnwire-notes", "")) is noted
    async with client.session.get(client.base + "/v1/models") as answer:
        (row,) = (await answer.json())["data"]
    assert "tools" not in row["supported_parameters"]
