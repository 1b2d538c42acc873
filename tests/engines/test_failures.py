"""Engines' own error texts, and the kind each one means."""

from __future__ import annotations

import json

import pytest

from turnwire.engines.failures import failure, refusal

OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens.",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "`prompt_len` (9000) should not be greater than max_seq_len (8192)",
    "the request exceeds the available context size",
    "prompt is too long: 9000 tokens > 8192 maximum",
]
CASES = [
    *((400, {"error": {"message": said}}, "context_overflow") for said in OVERFLOWS),
    (400, {"object": "error", "message": OVERFLOWS[3], "code": 400}, "context_overflow"),
    (400, {"error": {"message": "boom", "type": "exceed_context_size_error"}}, "context_overflow"),
    (400, {"error": {"message": "boom", "type": "context_length_exceeded"}}, "context_overflow"),
    (413, {"error": "request too large"}, "context_overflow"),
    (400, {"error": "1 validation error for temperature"}, "invalid_request"),
    (422, {"detail": [{"loc": ["body", "top_p"], "msg": "too large"}]}, "invalid_request"),
    (404, {"error": {"message": "The model `x` does not exist."}}, "invalid_request"),
    (503, {"error": {"message": "The request queue is full."}}, "overloaded"),
    (503, {"error": {"message": "Loading model", "type": "unavailable_error"}}, "overloaded"),
    (429, {"error": {"message": "slow down"}}, "overloaded"),
    (529, {"error": {"message": "busy"}}, "overloaded"),
    (500, {"error": {"message": "EngineCore encountered an issue"}}, "internal"),
    (502, "bad gateway", "unreachable"),
    (504, "late", "timeout"),
    (401, {"error": {"message": "bad key"}}, "internal"),
]


@pytest.mark.parametrize(("status", "body", "kind"), CASES)
def test_kinds(status: int, body: object, kind: str) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = refusal("vLLM", status, raw)
    assert error.kind == kind
    assert error.message.startswith("vLLM")


def test_words_are_kept_and_shortened() -> None:
    error = refusal("vLLM", 400, json.dumps({"error": {"message": "top_p is\n wrong " + "x" * 5000}}).encode())
    assert error.message.startswith("vLLM: top_p is wrong xxx")
    assert len(error.message) < 700


def test_an_empty_answer_says_its_status() -> None:
    assert refusal("vLLM", 500, b"").message == "vLLM: HTTP 500"


def test_a_refused_key_says_what_to_set() -> None:
    assert "API key" in failure("vLLM", "Unauthorized", status=401).message


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("Tue, 1 Jan", None), (None, None)])
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert refusal("vLLM", 429, b"{}", header).retry_after == seconds


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error":"caf\xe9"}', '{"error":"caf\ufffd"}'),
        (b'{"detail":' + b"[" * 1500 + b"]" * 1500 + b"}", '{"detail":['),
        (b"<html>", "<html>"),
    ],
    ids=["not UTF-8", "too deep", "not JSON"],
)
def test_a_body_that_cannot_be_read_is_told_as_it_came(body: bytes, told: str) -> None:
    error = refusal("vLLM", 500, body)
    assert error.kind == "internal"
    assert error.message.startswith(f"vLLM: {told}")
