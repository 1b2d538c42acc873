"""Some hundred bad requests in every run; `python -m benchmarks fuzz` is the same with two hundred thousand."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import msgspec
import pytest

from turnwire.gateway.routes import ROUTES, methods_of
from turnwire.gateway.server import ServerComplaints

from .conftest import Serve

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.fuzz.bodies import script
from benchmarks.fuzz.findings import Finding
from benchmarks.fuzz.requests import Fuzzer, Request
from benchmarks.fuzz.run import Fuzz
from benchmarks.fuzz.sockets import Visit, drawn
from benchmarks.fuzz.verdicts import fault, stream_fault
from benchmarks.fuzz.wire import Answer


@pytest.mark.slow
async def test_bad_requests_are_refused_in_the_apis_own_words(serve: Serve) -> None:
    client = await serve(*script("qwen3_coder"), model="m", alias=("h", "g", "v"))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        tally = await Fuzz(int(client.base.rpartition(":")[2]), 1500, 11).run(8)
    finally:
        sys.setrecursionlimit(limit)
    assert tally.findings == []
    assert tally.requests >= 1500
    assert tally.statuses["400"] > 300
    assert tally.statuses["200"] > 300
    assert tally.streams > 50


def drawn_by(fuzzer: Fuzzer, number: int) -> tuple[Request, Visit]:
    fuzzer.begin(number)
    return fuzzer.request(), drawn(fuzzer)


def test_a_request_follows_from_its_seed_and_number_alone() -> None:
    one, other = Fuzzer(7), Fuzzer(7)
    for _ in range(64):
        other.learn(b'{"id": "resp_x"}')
    first = [drawn_by(one, number) for number in range(100)]
    assert [drawn_by(other, number) for number in reversed(range(100))] == first[::-1]
    assert len({request.body for request, _ in first}) > 50
    assert drawn_by(Fuzzer(8), 3) != first[3]


def test_a_finding_holds_what_was_sent_to_the_byte() -> None:
    request, visit = drawn_by(Fuzzer(7), 1)
    findings = [Finding("hang", 7, 1, (request, request)), Finding("cut", 7, 1, visit=visit)]
    assert msgspec.json.decode(msgspec.json.encode(findings), type=list[Finding]) == findings


def asked(route: str, path: str = "") -> Request:
    method, _, at = route.partition(" ")
    return Request(method, path or at, (), b"", route)


def told(status: int, body: bytes) -> Answer:
    return Answer(status, "application/json", body)


def test_the_fuzzer_sees_what_it_is_for() -> None:
    messages = asked("POST /v1/messages")
    assert fault(messages, told(500, b"{}")) == "status 500"
    assert "error object" in str(fault(messages, told(404, b"Not Found")))
    assert "Anthropic" in str(fault(messages, told(400, b'{"error":{"message":"x","type":"y"}}')))
    assert fault(messages, told(400, b'{"type":"error","error":{"message":"x","type":"y"}}')) is None
    assert "order" in str(stream_fault("POST /v1/messages", b'event: ping\ndata: {"type":"message_stop"}\n\n'))
    assert fault(asked("POST /v1/chat/completions"), Answer(200, "text/event-stream", b"", cut=True)) is not None


CHUNK = b'data: {"id":"c","choices":[{"index":%d,"text":"x","finish_reason":%s}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (CHUNK % (0, b"null") + CHUNK % (0, b'"stop"') + DONE, None),
        (CHUNK % (0, b"null") + DONE, "without a finish"),
        (CHUNK % (0, b'"stop"') + CHUNK % (0, b"null") + DONE, "after the finish"),
        (CHUNK % (0, b'"stop"'), "no [DONE]"),
        (CHUNK % (0, b'"stop"') + DONE + CHUNK % (1, b"null"), "after [DONE]"),
        (CHUNK % (0, b'"stop"') + b"data: {", "inside an event"),
    ],
)
def test_a_stream_of_completions_has_one_end(body: bytes, wrong: str | None) -> None:
    found = stream_fault("POST /v1/completions", body)
    assert found is None if wrong is None else wrong in str(found)


def test_what_a_client_sends_wrong_is_no_trace_in_the_log() -> None:
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "Invalid UTF-8 sequence received", (), None)
    record.exc_info = (ValueError, ValueError(), None)
    ServerComplaints().filter(record)
    assert (record.levelname, record.exc_info) == ("INFO", None)


async def test_a_head_request_for_the_endless_events_ends(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    for _ in range(2):  # the second on the connection of the first
        async with client.session.head(client.base + "/admin/events") as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")


async def test_the_document_describes_what_is_served(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    served = {(row.method, row.path) for row in ROUTES}
    async with client.session.get(client.base + "/openapi.json") as answer:
        document = await answer.json()
    assert document["openapi"].startswith("3.1")
    assert {(m.upper(), path) for path, item in document["paths"].items() for m in item} == served
    for item in document["paths"].values():
        for operation in item.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if content:
                name = content["schema"]["$ref"].rpartition("/")[2]
                assert name in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("method", "path", "status", "shape"),
    [
        ("GET", "/v1/messages", 405, "anthropic"),
        ("DELETE", "/v1/messages/count_tokens", 405, "anthropic"),
        ("GET", "/v1/chat/completions", 405, "openai"),
        ("PUT", "/v1/responses", 405, "openai"),
        ("POST", "/v1/models", 405, "openai"),
        ("POST", "/v1/messages/batches", 404, "anthropic"),
        ("GET", "/v1/nothing", 404, "openai"),
        ("POST", "/v1/messages/", 404, "anthropic"),
        ("GET", "/metrics/", 404, "openai"),
        ("OPTIONS", "/v1/chat/completions", 405, "openai"),
    ],
)
async def test_unknown_paths_and_methods_are_told_in_the_apis_shape(
    serve: Serve, method: str, path: str, status: int, shape: str
) -> None:
    client = await serve({"text": "Hi."})
    async with client.session.request(method, client.base + path, allow_redirects=False) as answer:
        assert answer.status == status
        assert ("allow" in answer.headers) == (status == 405)
        body = await answer.json()
    assert body["error"]["message"]
    assert (body.get("type") == "error") == (shape == "anthropic")


def test_patterns_of_paths_fit_what_they_should() -> None:
    assert methods_of("/v1/responses/resp_1") == ("GET", "DELETE")
    assert methods_of("/v1/responses/") == ()
    assert methods_of("/v1/models/org/name") == ("GET",)
    assert methods_of("/v1/models/") == ()
