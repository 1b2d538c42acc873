"""Images on their way to engines that take prompts: what each server is sent, and what is claimed of it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import turnwire.prompts
from tests.engines.seeing import IMAGE_TOKENS, MARK, SEEING, SeeingVLLM, Spelling
from tests.engines.servers import FakeLlamaCpp, FakeServer, FakeSGLang, FakeVLLM
from tests.gateway.conftest import Client, running
from turnwire.engines.scripted.script import Line
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.diagnosis import diagnose
from turnwire.prompts.tokenizers.load import load_tokenizer

TOKENIZER = Path(turnwire.prompts.__file__).parent / "data" / "turnwire-tokenizer.json"
PNG = "iVBORw0KGgo="
OTHER = "iVBORw0KGgp="
TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{%- if part.type == 'image' %}(*picture*){% else %}{{ part.text }}{% endif -%}
{%- endfor %}{% endif %}
{%- for call in message.tool_calls or () %}
<tool_call>
<function={{ call.function.name }}>
{% for key, value in call.function.arguments.items() %}<parameter={{ key }}>
{{ value }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
BLIND: dict[str, type[FakeServer]] = {"vllm": FakeVLLM, "sglang": FakeSGLang, "llamacpp": FakeLlamaCpp}
CALL = "<tool_call>\n<function=Read>\n<parameter=path>\nb.png\n</parameter>\n</function>\n</tool_call>"
TOOL = {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}


@asynccontextmanager
async def served(
    kind: str, folder: Path, *, text: str = "A cat.", servers: dict[str, type[FakeServer]] = SEEING, **over: Any
) -> AsyncIterator[tuple[Client, FakeServer]]:
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    server = servers[kind](Line(text=text), Spelling())  # type: ignore[arg-type]
    url = await server.start()
    try:
        settings = Settings(engine=f"{kind}:{url}", tokenizer=str(folder), dialect="qwen3_coder", **over)
        async with running(settings) as client:
            server.requests.clear()
            yield client, server
    finally:
        await server.stop()


def picture(data: str = PNG) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def asked(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"max_tokens": 50, "tools": [TOOL], "messages": [{"role": "user", "content": list(content)}], **fields}


def in_tool_result() -> dict[str, Any]:
    """As Claude Code sends what its Read tool saw: the picture is in the result, and the user adds another."""
    return {
        "max_tokens": 50,
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": "Look at a.png."},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [picture(), {"type": "text", "text": "ok"}],
                    },
                    picture(OTHER),
                    {"type": "text", "text": "And this?"},
                ],
            },
        ],
    }


async def said(client: Client, body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...], str]:
    """The answer, the notes of the turn, and the verdict on its prefix."""
    async with client.session.post(f"{client.base}/v1/messages", json=body) as answer:
        document = await answer.json()
        assert answer.status == 200, document
        verdict = answer.headers["x-turnwire-prefix"]
    return document, next(client.gateway.journal.last(1)).notes, verdict


def sent(kind: str, body: dict[str, Any]) -> list[str]:
    """The images of a request, in order, as base64."""
    if kind == "vllm":
        parts = [part for message in body["messages"] for part in message["content"] or () if isinstance(part, dict)]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        return [url.removeprefix("data:image/png;base64,") for url in urls]
    if kind == "sglang":
        return [url.removeprefix("data:image/png;base64,") for url in body["image_data"]]
    return list(body["prompt"]["multimodal_data"])


@pytest.mark.parametrize("kind", list(SEEING))
async def test_an_image_of_a_tool_and_one_of_the_user_reach_the_engine_in_order(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path, text=CALL) as (client, server):
        answer, notes, verdict = await said(client, in_tool_result())
        (body,) = server.requests
        assert sent(kind, body) == [PNG, OTHER]
        assert answer["content"][0]["input"] == {"path": "b.png"}
        assert answer["usage"]["input_tokens"] > 2 * IMAGE_TOKENS
        assert verdict == "unseen"
        assert ("engine.images_by_chat" in notes) == (kind == "vllm")
        assert "content.image_omitted" not in notes


async def test_the_prompt_around_images_is_written_here(tmp_path: Path) -> None:
    async with served("llamacpp", tmp_path) as (client, server):
        await said(client, asked({"type": "text", "text": "See:"}, picture(), {"type": "text", "text": "well?"}))
        assert f"See:{MARK}well?<|im_end|>" in server.requests[0]["prompt"]["prompt_string"]
        assert server.requests[0]["prompt"]["prompt_string"].endswith("<|im_start|>assistant\n")
        await said(client, asked({"type": "text", "text": "No picture."}))
        assert isinstance(server.requests[1]["prompt"], list)
    async with served("sglang", tmp_path) as (client, server):
        await said(client, asked({"type": "text", "text": "See:"}, picture(), {"type": "text", "text": "well?"}))
        assert "See:(*picture*)well?" in load_tokenizer(None).decode(server.requests[0]["input_ids"])


@pytest.mark.parametrize("parser", [False, True])
async def test_vllm_shows_the_tools_and_leaves_the_answer_to_us(parser: bool, tmp_path: Path) -> None:
    """Whether or not it was started with parsers of its own: the ids say what the model wrote."""
    async with served("vllm", tmp_path, text=CALL) as (client, server):
        assert isinstance(server, SeeingVLLM)
        server.reasoning = parser
        wish = {"thinking": {"type": "disabled"}, "tool_choice": {"type": "tool", "name": "Read"}}
        answer, _, _ = await said(client, asked(picture(), **wish))
        (body,) = server.requests
        assert answer["stop_reason"] == "tool_use"
        assert [tool["function"]["name"] for tool in body["tools"]] == ["Read"]
        assert body["tool_choice"] == "none"
        assert "structured_outputs" in body
        assert body["chat_template_kwargs"]["enable_thinking"] is False


@pytest.mark.parametrize("kind", list(SEEING))
async def test_what_cannot_see_gets_a_placeholder_and_a_note(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path, servers=BLIND) as (client, server):
        _, notes, verdict = await said(client, asked({"type": "text", "text": "See:"}, picture()))
        assert "content.image_omitted" in notes
        assert verdict == "first"
        prompt = server.requests[0]["input_ids" if kind == "sglang" else "prompt"]
        assert "See:[image]" in load_tokenizer(None).decode(prompt)


@pytest.mark.slow
@pytest.mark.parametrize("sees", [True, False])
@pytest.mark.parametrize("kind", list(SEEING))
async def test_lists_and_doctor_claim_what_the_engine_can_do(kind: str, sees: bool, tmp_path: Path) -> None:
    async with served(kind, tmp_path, servers=SEEING if sees else BLIND) as (client, _server):
        async with client.session.get(f"{client.base}/v1/models") as answer:
            (row,) = (await answer.json())["data"]
        assert row["input_modalities"] == (["text", "image"] if sees else ["text"])
        (entry,) = client.gateway.entries()
        assert entry["input_modalities"] == row["input_modalities"]
        settings = client.gateway.settings
        (found,) = [each for each in await diagnose(settings) if each.topic == "images"]
        assert found.text.startswith("seen" if sees else "not seen")


@pytest.mark.parametrize("text", [MARK, "<|im_end|>"])
async def test_content_cannot_pose_as_an_image_or_as_control(text: str, tmp_path: Path) -> None:
    async with served("llamacpp", tmp_path) as (client, server):
        status, answer = await client.post("/v1/messages", asked({"type": "text", "text": f"a {text} b"}, picture()))
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert not server.requests


@pytest.mark.parametrize("kind", list(SEEING))
async def test_no_engine_is_sent_to_fetch_what_a_client_names(kind: str, tmp_path: Path) -> None:
    url = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/latest"}}
    async with served(kind, tmp_path) as (client, server):
        status, answer = await client.post("/v1/messages", asked(url))
        assert (status, server.requests) == (400, [])
        assert "base64" in answer["error"]["message"]


async def test_a_thinking_budget_that_the_chat_route_cannot_hold_is_noted(tmp_path: Path) -> None:
    async with served("vllm", tmp_path) as (client, _):
        wish = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
        _, notes, _ = await said(client, asked(picture(), **wish))
        assert "thinking.budget_unbounded" in notes
