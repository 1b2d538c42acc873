"""One gateway, three models on two kinds of engine: roles, defaults, notes and fallbacks as clients see them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gateway.conftest import running
from tests.gateway.setup.upstreams import HostedChat
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.settings import ModelSettings, Settings


def settings(folder: Path, server: HostedChat) -> Settings:
    for name in ("big", "spare"):
        (folder / f"{name}.jsonl").write_text(json.dumps({"text": f"I am {name}."}) + "\n")
    return Settings(
        models=(
            ModelSettings(
                name="big", engine=f"scripted:{folder}/big.jsonl", roles=("opus",), fallbacks=("spare",), window=9000
            ),
            ModelSettings(
                name="small", engine=f"openai:{server.url}", upstream_model="llama3.2:1b", roles=("haiku", "background")
            ),
            ModelSettings(name="spare", engine=f"scripted:{folder}/spare.jsonl", roles=("default",)),
        )
    )


def asking(model: str | None, **fields: object) -> dict[str, object]:
    named = {} if model is None else {"model": model}
    return {**named, "max_tokens": 50, "messages": [{"role": "user", "content": "Who are you?"}], **fields}


async def test_each_request_gets_the_model_it_means(tmp_path: Path) -> None:
    async with HostedChat("other", "llama3.2:1b").running() as server, running(settings(tmp_path, server)) as client:

        async def said(path: str, body: dict[str, object]) -> tuple[str, str, str]:
            async with client.session.post(client.base + path, json=body) as answer:
                document = await answer.json()
                assert answer.status == 200, document
                text = document["content"][-1]["text"] if "content" in document else document["choices"][0]["message"]
                words = text if isinstance(text, str) else text["content"]
                return words, document["model"], answer.headers.get("x-turnwire-notes", "")

        assert await said("/v1/messages", asking("claude-opus-5-5")) == ("I am big.", "claude-opus-5-5", "")
        assert await said("/v1/messages", asking("claude-haiku-4-5")) == ("Hello.", "claude-haiku-4-5", "")
        assert await said("/v1/messages", asking("claude-sonnet-5")) == (
            *("I am spare.", "claude-sonnet-5"),
            "model.default",
        )
        assert await said("/v1/chat/completions", asking(None)) == ("I am spare.", "spare", "")
        assert await said("/v1/messages", asking(None)) == ("I am spare.", "spare", "")
        schema = {"type": "object", "properties": {"title": {"type": "string"}}}
        title = asking("big", output_config={"format": {"type": "json_schema", "schema": schema}})
        words, _, notes = await said("/v1/messages", title)
        assert (words, "model.role" in notes) == ("Hello.", True)
        assert {body["model"] for body in server.asked} == {"llama3.2:1b"}

        status, answer = await client.post("/v1/messages", asking("bgi"))
        assert (status, "Did you mean big" in answer["error"]["message"]) == (404, True)
        async with client.session.get(client.base + "/v1/models") as reply:
            listed = [row["id"] for row in (await reply.json())["data"]]
        assert {"big", "small", "spare"} <= set(listed)

        engine = client.gateway.runtime_for("big").engine
        assert isinstance(engine, WorkerPool)
        for worker in engine.workers:
            worker.health.unreached("gone", 0.0)
        assert await said("/v1/messages", asking("big")) == ("I am spare.", "big", "model.fallback")
