"""Embeddings over a real socket: shapes, encodings, names, refusals."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import openai
import pytest
from openai.types import CreateEmbeddingResponse

from turnwire.engines.interface import Vectors
from turnwire.engines.pool.pool import WorkerPool
from turnwire.protocols import embeddings
from turnwire.protocols.wire import TurnFailure

from .conftest import Serve

FACTS = ["The lab is open from ten to six.", "The chess club meets on Thursday.", "Tutoring is free for students."]


def request(**over: Any) -> dict[str, Any]:
    return {"model": "test-model", "input": FACTS} | over


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_unit_vectors_in_the_order_of_the_inputs(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    status, answer = await client.post("/v1/embeddings", request())
    assert status == 200
    CreateEmbeddingResponse.model_validate(answer, strict=True)
    vectors = [entry["embedding"] for entry in answer["data"]]
    assert [entry["index"] for entry in answer["data"]] == [0, 1, 2]
    assert all(math.isclose(dot(vector, vector), 1.0, rel_tol=1e-6) for vector in vectors)
    assert answer["model"] == "test-model"
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    _, asked = await client.post("/v1/embeddings", request(input="When does the chess club meet?"))
    nearness = [dot(asked["data"][0]["embedding"], vector) for vector in vectors]
    assert nearness.index(max(nearness)) == 1


async def test_the_model_that_embeds_counts(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hi."})

    async def embed(_: object, inputs: list[str]) -> Vectors:
        return Vectors(([1.0] for _ in inputs), tokens=321)

    monkeypatch.setattr(WorkerPool, "embed", embed)
    _, answer = await client.post("/v1/embeddings", request())
    assert answer["usage"] == {"prompt_tokens": 321, "total_tokens": 321}


async def test_base64_holds_the_same_numbers(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    _, plain = await client.post("/v1/embeddings", request(encoding_format="float"))
    _, packed = await client.post("/v1/embeddings", request(encoding_format="base64"))
    for one, other in zip(plain["data"], packed["data"], strict=True):
        data = base64.b64decode(other["embedding"])
        numbers = struct.unpack(f"<{len(data) // 4}f", data)
        assert numbers == pytest.approx(one["embedding"], abs=1e-6)


async def test_token_ids_mean_their_text(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    tokenizer = client.gateway.runtimes[0].tokenizer
    _, texts = await client.post("/v1/embeddings", request())
    for value in ([tokenizer.encode(fact) for fact in FACTS], FACTS):
        _, ids = await client.post("/v1/embeddings", request(input=value))
        assert [entry["embedding"] for entry in ids["data"]] == [entry["embedding"] for entry in texts["data"]]
    _, one = await client.post("/v1/embeddings", request(input=tokenizer.encode(FACTS[0])))
    assert one["data"][0]["embedding"] == texts["data"][0]["embedding"]


async def test_fields_that_nobody_reads_are_noted_not_refused(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    body = request(input_type="query", truncate="END")
    async with client.session.post(client.base + "/v1/embeddings", json=body) as answer:
        assert answer.status == 200
        assert answer.headers["x-turnwire-notes"] == "request.field_ignored"


async def test_the_model_by_id_by_alias_and_by_the_embedding_models_own_id(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, alias=("house/embedder",))
    for model in ("test-model", "house/embedder", "hashed-words"):
        status, answer = await client.post("/v1/embeddings", request(model=model))
        assert (status, answer["model"]) == (200, model)


@pytest.mark.parametrize(
    ("over", "param"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": ["ok", ""]}, "input.1"),
        ({"input": ["ok", 3]}, "input.1"),
        ({"input": ["x"] * 3000}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
    ],
)
def test_a_wrong_field_is_named(over: dict[str, Any], param: str) -> None:
    with pytest.raises(TurnFailure) as refused:
        embeddings.decode(json.dumps(request(**over)).encode())
    assert (refused.value.kind, refused.value.param) == ("invalid_request", param)


async def test_what_only_the_model_can_refuse(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    for over, status, param in (
        ({"input": [10**9]}, 400, "input"),
        ({"dimensions": 7}, 400, "dimensions"),
        ({"model": "nobody"}, 404, None),
    ):
        found, error = await client.post("/v1/embeddings", request(**over))
        assert (found, error["error"]["param"]) == (status, param)


async def test_as_the_openai_sdk_asks(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    async with openai.AsyncOpenAI(base_url=client.base + "/v1", api_key="none", max_retries=0) as sdk:
        answer = await sdk.embeddings.create(model="test-model", input=FACTS, extra_body={"input_type": "passage"})
    assert len(answer.data) == 3
    assert all(isinstance(value, float) for value in answer.data[0].embedding)
