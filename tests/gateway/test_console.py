"""The operator's routes that the console reads, and its files."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import turnwire.console.pages
from turnwire.gateway.door.keys import hash_key
from turnwire.gateway.routes import ROUTES

from .conftest import Serve

BODY = {"model": "test-model", "max_tokens": 500, "messages": [{"role": "user", "content": "Hi."}]}
SLOW = {"text": "Hm.\n</think>\n\n" + "word " * 500, "delay_ms": 20}


async def test_a_browser_gets_the_console(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."})
    async with client.session.get(client.base + "/", headers={"accept": "text/html,*/*"}) as answer:
        page = await answer.text()
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    # Relative, so that a proxy may serve the gateway under a path of its own.
    parts = [f"/{part}" for part in re.findall(r'"(console/[a-z.]+)"', page)]
    assert parts
    for path in (*parts, "/console/timeline.js"):
        async with client.session.get(client.base + path) as answer:
            assert answer.status == 200, path
            assert len(await answer.read()) > 100
    for path in ("/console/charts.js", "/console/uPlot.iife.min.js", "/console/uPlot.min.css"):
        async with client.session.get(client.base + path) as answer:
            assert answer.status == 200, path
    async with client.session.get(client.base + "/console/none.js") as answer:
        assert answer.status == 404


async def test_everybody_else_gets_a_few_lines_that_name_what_is_here_and_nothing_of_the_operators(
    serve: Serve, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "a"\nhash = "{hash_key("secret")}"\n')
    for settings, words in (({}, "GET /openapi.json"), ({"keys": str(keys)}, "needs an API key")):
        client = await serve({"text": "Hi."}, **settings)
        async with client.session.get(client.base + "/", headers={"accept": "*/*"}) as answer:
            told = await answer.text()
            assert (answer.status, answer.content_type) == (200, "text/plain")
        assert words in told
        assert "test-model" not in told
        named = set(re.findall(r"/\w[\w/.]*", told))
        assert named <= {row.path for row in ROUTES}
        assert {"/v1/messages", "/v1/chat/completions", "/v1/responses"} <= named
        async with client.session.head(client.base + "/") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with client.session.get(client.base + "/health") as answer:
            shown = await answer.json()
        assert shown == {"status": "ok"} | ({} if settings else {"models": ["test-model"]})


def test_the_console_asks_nobody_else() -> None:
    folder = Path(turnwire.console.pages.__file__).parent / "static"
    named = ("http://www.w3.org", "https://github.com/leeoniya/uPlot")  # a namespace; the chart library's own comment
    for file in folder.rglob("*.*"):
        found = re.findall(r"https?://[^\"'\s)<>]+", file.read_text(encoding="utf-8"))
        assert [url for url in found if not url.startswith(named)] == [], file.name


async def test_a_running_turn_is_seen_and_can_be_cancelled(serve: Serve) -> None:
    client = await serve(SLOW)
    session = {"x-claude-code-session-id": "s-1", "user-agent": "claude-cli/2.1.325 (external, cli)"}
    asked = client.session.post(client.base + "/v1/chat/completions", json=BODY | {"stream": True}, headers=session)
    async with asked as answer:
        await answer.content.readany()
        live: list[dict[str, object]] = []
        async with asyncio.timeout(10):
            while not live or live[0]["stage"] != "text":
                async with client.session.get(client.base + "/admin/live") as told:
                    live = await told.json()
        (turn,) = live
        assert (turn["session"], turn["model"], turn["client"]) == ("s-1", "test-model", "claude-cli/2.1.325")
        assert turn["worker"] is not None
        async with client.session.post(f"{client.base}/admin/turns/{turn['turn_id']}/cancel") as told:
            assert (await told.json())["cancelled"] is True
        rest = (await answer.read()).decode()
    assert "The operator cancelled this turn." in rest
    assert "[DONE]" not in rest
    status, error = await client.post(f"/admin/turns/{turn['turn_id']}/cancel", {})
    assert status == 404
    assert "running" in error["error"]["message"]
    (summary,) = client.gateway.journal.last(1)
    assert summary.finish == "cancelled"
    assert summary.output_tokens > 0


async def test_a_summary_tells_the_parts_of_a_turn_and_no_words_of_it(serve: Serve) -> None:
    call = "Secret thought.\n</think>\n\nSome words.\n<tool_call>\n<function=ls>\n</function>\n</tool_call>"
    client = await serve({"text": call, "delay_ms": 1})
    tools = [{"name": "ls", "input_schema": {"type": "object"}}]
    await client.post("/v1/messages", BODY | {"tools": tools, "system": "A system text."})
    async with client.session.get(client.base + "/admin/turns") as told:
        text = await told.text()
    (turn,) = json.loads(text)["turns"]
    # On a busy machine a turn may wait a moment in the queue.
    kinds = [span["kind"] for span in turn["spans"] if span["kind"] != "queue"]
    assert kinds == ["prefill", "reasoning", "text", "tool_call"]
    assert [span["name"] for span in turn["spans"] if span["name"]] == ["ls"]
    ends = [span["end"] for span in turn["spans"]]
    assert ends == sorted(ends)
    assert all(span["start"] <= span["end"] for span in turn["spans"])
    assert sum(turn["sections"].values()) == turn["prompt_tokens"]
    assert turn["route"] == "only"
    for words in ("Secret", "Some words", "A system text"):
        assert words not in text


async def test_turns_are_told_as_they_end(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."})
    async with client.session.get(client.base + "/admin/events") as events:
        assert (await events.content.readuntil(b"\n\n")).startswith(b"event: live\ndata: []")
        await client.post("/v1/messages", BODY)
        frame = b""
        async with asyncio.timeout(10):
            while not frame.startswith(b"event: turn"):
                frame = await events.content.readuntil(b"\n\n")
    assert json.loads(frame.split(b"data: ")[1])["finish"] == "stop"
    async with asyncio.timeout(10):
        while client.gateway.journal._listeners:
            await asyncio.sleep(0.05)


async def test_settings_are_shown_without_secrets_and_only_to_operators(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        f'[[key]]\nname = "user"\nhash = "{hash_key("u")}"\n'
        f'[[key]]\nname = "root"\nhash = "{hash_key("r")}"\nscopes = ["admin"]\n'
    )
    client = await serve({"text": "Hi."}, keys=str(keys), seal_key="00" * 32)
    for path in ("/admin/settings", "/admin/live", "/admin/workers", "/admin/events", "/admin/turns"):
        async with client.session.get(client.base + path, headers={"authorization": "Bearer u"}) as answer:
            assert answer.status == 403, path
    async with client.session.get(client.base + "/admin/settings", headers={"authorization": "Bearer r"}) as answer:
        shown = await answer.text()
    assert "00" * 32 not in shown
    assert json.loads(shown)["seal_key"] == "(set)"
    path = "/admin/settings?described=true"
    async with client.session.get(client.base + path, headers={"authorization": "Bearer r"}) as answer:
        rows = {row["name"]: row for row in await answer.json()}
    assert "00" * 32 not in str(rows)
    assert (rows["seal_key"]["chosen"], rows["turns"]["chosen"]) == (True, False)
    assert rows["port"]["description"] == "Port to listen on; 0 picks a free one."
    async with client.session.get(client.base + "/admin/workers", headers={"authorization": "Bearer r"}) as answer:
        (worker,) = await answer.json()
    assert (worker["state"], worker["active"]) == ("healthy", 0)
