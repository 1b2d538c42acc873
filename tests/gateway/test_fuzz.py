"""A few thousand bad requests in every run; benchmarks/fuzz_requests.py is the same with a hundred thousand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from turnwire.gateway.routes import ROUTES, methods_of

from .conftest import Serve

FUZZER = Path(__file__).parents[2] / "benchmarks" / "fuzz_requests.py"


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_requests", FUZZER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_bad_requests_are_refused_in_the_apis_own_words(serve: Serve, fuzzer: ModuleType) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nA short answer."}, model="m")
    port = int(client.base.rpartition(":")[2])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        statuses, findings = await fuzzer.fuzz(port, 2000, 11, 8)
    finally:
        sys.setrecursionlimit(limit)
    assert findings == []
    assert statuses.total() == 2000
    assert statuses[400] > 800
    assert statuses[200] > 100


async def test_the_fuzzer_sees_what_it_is_for(fuzzer: ModuleType) -> None:
    fault = fuzzer.fault
    assert fault("/v1/messages", "POST", 500, "", b"{}") == "status 500"
    assert "error object" in fault("/v1/messages", "POST", 404, "", b"Not Found")
    assert "Anthropic" in fault("/v1/messages", "POST", 400, "", b'{"error":{"message":"x","type":"y"}}')
    assert fault("/v1/messages", "POST", 400, "", b'{"type":"error","error":{"message":"x","type":"y"}}') is None


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
