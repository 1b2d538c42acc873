"""Routing as clients and operators see it: headers, metrics, workers, and what a request says of its place."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.settings import SettingsError
from turnwire.gateway.setup.routing_policy import find_policy

from .conftest import Client, Serve
from .test_liveness import until
from .test_observability import metrics, value

SCAFFOLD = "You are an agent. " * 200


def asked(question: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": SCAFFOLD}, {"role": "user", "content": question}]
    return {"model": "test-model", "messages": messages, "max_tokens": 20}


async def two_workers(serve: Serve, tmp_path: Path, **over: Any) -> Client:
    line = json.dumps({"text": "Yes."}) + "\n"
    scripts = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for script in scripts:
        script.write_text(line * 20)
    return await serve(engine=",".join(f"scripted:{script}" for script in scripts), **over)


async def route(client: Client, question: str, **headers: str) -> tuple[str, str, dict[str, int]]:
    body = asked(question)
    async with client.session.post(client.base + "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        why, *numbers = answer.headers["x-turnwire-route"].split("; ")
        return (
            answer.headers["x-turnwire-worker"],
            why,
            {name: int(count) for name, _, count in (number.partition("=") for number in numbers)},
        )


async def test_every_answer_says_where_it_was_made_and_why(serve: Serve, tmp_path: Path) -> None:
    client = await two_workers(serve, tmp_path)
    worker, why, numbers = await route(client, "One?")
    assert (worker, why, numbers["cached"]) == ("w1", "load", 0)
    worker, why, numbers = await route(client, "One?")
    assert (worker, why) == ("w1", "session"), "the same opening is the same conversation"
    assert 0 < numbers["cached"] < numbers["prompt"]
    worker, why, numbers = await route(client, "Something else?")
    assert (worker, why) == ("w1", "prefix"), "another conversation with the same scaffold"
    page = await metrics(client)
    assert value(page, "turnwire_routes_total", worker="w1", why="session") == 1
    assert value(page, "turnwire_routes_total", worker="w1") == 3
    believed = value(page, "turnwire_cache_belief_tokens_total", kind="believed")
    reported = value(page, "turnwire_cache_belief_tokens_total", kind="reported")
    over, under = (value(page, "turnwire_cache_belief_error_tokens_total", direction=one) for one in ("over", "under"))
    assert believed - reported == over - under
    assert reported > 0
    async with client.session.get(client.base + "/admin/workers") as answer:
        rows = {row["label"]: row for row in await answer.json()}
    assert set(rows) == {"w1", "w2"}
    assert rows["w1"]["resident"] > 0
    assert (rows["w1"]["prefilling"], rows["w1"]["decoding"], rows["w2"]["resident"]) == (0, 0, 0)
    async with client.session.get(client.base + "/admin/turns") as answer:
        turns = (await answer.json())["turns"]
    assert [turn["route"] for turn in turns] == ["prefix", "session", "load"]


async def test_one_worker_is_the_only_one(serve: Serve) -> None:
    client = await serve({"text": "Yes."})
    worker, why, numbers = await route(client, "One?")
    assert (worker, why, set(numbers)) == ("w1", "only", {"prompt", "queued_ms"})


async def test_what_a_request_says_of_its_place_reaches_the_pool(serve: Serve, tmp_path: Path) -> None:
    client = await two_workers(serve, tmp_path)
    pool: Any = client.gateway.runtimes[0].engine
    seen: list[Any] = []
    submit = pool.submit
    pool.submit = lambda request, receiver: (seen.append(request.hints), submit(request, receiver))[1]
    hints = {"priority": 3, "strict_priority": 2, "osl": 777, "latency_sensitivity": 1.0}
    before = time.monotonic()
    status, _ = await client.post(
        "/v1/chat/completions", asked("One?") | {"nvext": {"agent_hints": hints}}, **{"x-turnwire-deadline": "30"}
    )
    (told,) = seen
    assert status == 200
    assert (told.priority, told.tier, told.expected_output, told.urgency) == (3, 2, 777, 1.0)
    assert told.deadline == pytest.approx(before + 30, abs=5)
    assert told.session


POLICY = """
from turnwire.engines.pool.routing import Decision

class Last:
    def choose(self, turn, workers):
        return Decision(workers[-1].index, "load")

policy = Last()
"""


async def test_a_file_of_the_operators_decides(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "policy.py"
    file.write_text(POLICY)
    client = await two_workers(serve, tmp_path, routing_policy=str(file))
    assert (await route(client, "One?"))[:2] == ("w2", "load")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "sets no variable `policy`"),
        ("policy = 5", "choose"),
        ("1 / 0", "ZeroDivisionError"),
        (None, "there is no file"),
    ],
)
def test_a_file_that_is_no_policy_is_said_at_the_start(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "policy.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=said):
        find_policy(str(file), "soft")
    with pytest.raises(SettingsError, match="entry point"):
        find_policy("nobody-has-this", "soft")


ANSWER = "It looks the same from every side. " * 60


async def test_the_next_prompt_is_read_ahead_where_the_template_drops_the_thoughts(serve: Serve) -> None:
    line = {"text": f"Let me see.\n</think>\n\n{ANSWER}"}
    client = await serve(*[line] * 6, speculative_prefill="hinted", history_thinking="drop")
    statistics = client.gateway.runtimes[0].engine.read_ahead.statistics  # type: ignore[attr-defined]
    hinted = {"nvext": {"agent_hints": {"speculative_prefill": True}}, "max_tokens": 2000}
    first = asked("Is it so?") | hinted
    _, said = await client.post("/v1/chat/completions", first)
    message = said["choices"][0]["message"]
    await until(lambda: statistics.tokens > 0)
    following = [*first["messages"], {"role": "assistant", "content": message["content"]}]
    following.append({"role": "user", "content": "And why?"})
    await client.post("/v1/chat/completions", first | {"messages": following})
    assert (statistics.hit + statistics.cut, statistics.wasted) == (1, 0)


async def test_a_hint_that_is_not_followed_is_noted(serve: Serve) -> None:
    client = await serve({"text": "Yes."})
    body = asked("One?") | {"nvext": {"agent_hints": {"speculative_prefill": True}}}
    async with client.session.post(client.base + "/v1/chat/completions", json=body) as answer:
        assert "routing.read_ahead_off" in answer.headers["x-turnwire-notes"]
    final = {"x-dynamo-session-id": "s", "x-dynamo-session-final": "true"}
    async with client.session.post(client.base + "/v1/chat/completions", json=asked("One?"), headers=final) as answer:
        assert "routing.session_end_unsaid" in answer.headers["x-turnwire-notes"]


# --------------------------------------------------------------------------------------------------------- warming


def bodies() -> dict[str, dict[str, Any]]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    said = [{"role": "user", "content": "Hi."}]
    function = {"name": "ls", "description": "Lists.", "parameters": schema}
    return {
        "chat": {
            "messages": [{"role": "system", "content": SCAFFOLD}, *said],
            "tools": [{"type": "function", "function": function}],
        },
        "messages": {
            "max_tokens": 20,
            "system": SCAFFOLD,
            "messages": said,
            "tools": [{"name": "ls", "description": "Lists.", "input_schema": schema}],
        },
        "responses": {"instructions": SCAFFOLD, "input": "Hi.", "tools": [{"type": "function"} | function]},
    }


PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


@pytest.mark.parametrize("api", PATHS)
async def test_a_session_finds_what_was_warmed(serve: Serve, tmp_path: Path, api: str) -> None:
    client = await two_workers(serve, tmp_path)
    body = bodies()[api] | {"model": "test-model"}
    status, told = await client.post(f"/admin/warm?api={api}&workers=every", body)
    assert status == 200, told
    assert [row["state"] for row in told["workers"]] == ["read", "read"]
    async with client.session.post(client.base + PATHS[api], json=body) as answer:
        assert answer.status == 200, await answer.text()
        numbers = answer.headers["x-turnwire-route"]
    cached, prompt = (int(numbers.partition(f"{name}=")[2].partition(";")[0]) for name in ("cached", "prompt"))
    # What is not published is estimated in blocks of 64 tokens.
    assert told["tokens"] - 64 < cached <= told["tokens"] < prompt < told["tokens"] + 40
    (turn,) = client.gateway.journal.last(1)
    assert turn.cached_tokens >= cached, "the engine says the same"
    assert value(await metrics(client), "turnwire_read_ahead_total", outcome="warmed") == 2
    status, told = await client.post(f"/admin/warm?api={api}", body)
    assert [row["state"] for row in told["workers"]] == ["held"]


async def test_warming_that_cannot_be_is_refused_in_words(serve: Serve, tmp_path: Path) -> None:
    client = await two_workers(serve, tmp_path)
    for query, body, words in (
        ("api=telnet", {}, "api: one of chat, messages, responses"),
        ("workers=some", {}, "workers: one of best, every"),
        ("", {"model": "test-model", "messages": 7}, "messages"),
        ("", {"model": "another", "messages": [{"role": "user", "content": "x"}]}, "another"),
    ):
        status, told = await client.post(f"/admin/warm?{query}", body)
        assert status in (400, 404)
        assert words in json.dumps(told)


async def test_a_client_that_says_it_will_start_is_read_ahead(serve: Serve) -> None:
    """Codex opens its connection with a request that generates nothing."""
    client = await serve({"text": "Yes."}, speculative_prefill="hinted")
    engine = client.gateway.runtimes[0].engine
    assert isinstance(engine, WorkerPool)
    message = {"type": "response.create", "model": "test-model", "generate": False} | bodies()["responses"]
    async with client.session.ws_connect(client.base + "/v1/responses") as socket:
        await socket.send_json(message)
        while (await socket.receive_json())["type"] != "response.completed":
            pass
        await until(lambda: engine.read_ahead.statistics.warmed == 1)
    body = {name: value for name, value in message.items() if name not in ("type", "generate")}
    _, answer = await client.post("/v1/responses", body)
    cached = answer["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached > 0.9 * answer["usage"]["input_tokens"]
