"""What is wrong with an answer: its status, the shape of its error, and every event of its stream.

Promise: streams and documents of turns are read by the readers of `turnwire conformance`, which know the order of
events, their fields, the one finish and the parts that add up to the whole; nothing that is sent raises here.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.fuzz.requests import Request
from benchmarks.fuzz.wire import Answer
from turnwire.conformance.apis.chat import Chat
from turnwire.conformance.apis.interface import Api
from turnwire.conformance.apis.messages import Messages
from turnwire.conformance.apis.responses import Responses
from turnwire.conformance.exchange import Exchange, Frame, frames_of
from turnwire.gateway.routes import shape_of

READERS: dict[str, Api] = {
    "POST /v1/messages": Messages(),
    "POST /v1/chat/completions": Chat(),
    "POST /v1/responses": Responses(),
}
FULL = b"say-9."
"""What makes a scripted worker fail in the middle of its answer."""
STREAM = "text/event-stream"
# 502: the model stopped before it wrote the summary that /compact is for. 503 and 529: the script's full worker.
FAILURES = (502, 503, 529)


def fault(request: Request, answer: Answer) -> str | None:
    """What is wrong with an answer, or None."""
    if answer.status >= 500 and answer.status not in FAILURES:
        return f"status {answer.status}"
    if request.method == "HEAD":
        return None
    if answer.status >= 400:
        return _refusal(request, answer)
    if answer.cut:
        return None if _failed_late(request, answer) else "a stream that was cut"
    if answer.kind == STREAM:
        return stream_fault(request.route, answer.body)
    if request.route in READERS and request.method == "POST":
        return _problems(READERS[request.route], _exchange(answer))
    if answer.kind == "application/json":
        return None if _parsed(answer.body) is not None else "a body that is not JSON"
    return None


def _refusal(request: Request, answer: Answer) -> str | None:
    path = request.path.partition("?")[0]
    if shape_of(path) == "none" and (answer.status != 404 or path.startswith("/console")):
        return None
    if answer.status in (408, 431) or (answer.status == 400 and b"valid HTTP" in answer.body):
        return None
    told = _parsed(answer.body)
    error = told.get("error") if isinstance(told, dict) else None
    if not isinstance(error, dict) or not isinstance(told, dict):
        return f"status {answer.status} without an error object"
    message = error.get("message")
    if not isinstance(message, str) or not message or not isinstance(error.get("type"), str):
        return "an error without message or type"
    if path.startswith("/v1/messages") and told.get("type") != "error":
        return "not Anthropic's error shape"
    return "a trace in the message" if "Traceback" in message or "site-packages" in message else None


def _failed_late(request: Request, answer: Answer) -> bool:
    """Whether an engine failed after text was shown on Messages, whose clients take only a cut for an error then."""
    begun = b"content_block_start" in answer.body and b"message_stop" not in answer.body
    return request.route == "POST /v1/messages" and FULL in request.plain and begun


def stream_fault(route: str, body: bytes) -> str | None:
    """What is wrong with the events of a stream."""
    frames = frames_of(body)
    if not body.endswith(b"\n\n"):
        return "a stream that ends inside an event"
    for frame in frames:
        if frame.data.strip() != "[DONE]" and _parsed(frame.data.encode()) is None:
            return f"an event that is not JSON: {frame.data[:80]}"
    if route == "POST /v1/chat/completions":
        return _choices(frames)
    if route == "POST /v1/completions":
        return _completions(frames)
    if route in READERS:
        exchange = Exchange(path=route, sent=None, status=200, kind=STREAM, frames=frames)
        return _problems(READERS[route], exchange)
    return None


def _choices(frames: list[Frame]) -> str | None:
    """The chat reader judges one choice; each gets the chunks that are about it, and those about none."""
    chunks = [(frame, _parsed(frame.data.encode())) for frame in frames]
    found = {choice.get("index") for _, chunk in chunks for choice in _listed(chunk)}
    for index in sorted(found, key=str) or [0]:
        own = [_only(frame, chunk, index) for frame, chunk in chunks if index in _indices(chunk) or not _listed(chunk)]
        problem = _problems(Chat(), Exchange(path="", sent=None, status=200, kind=STREAM, frames=own))
        if problem is not None:
            return f"choice {index}: {problem}"
    return None


def _only(frame: Frame, chunk: Any, index: object) -> Frame:
    if len(_listed(chunk)) < 2:
        return frame
    kept = {**chunk, "choices": [choice for choice in _listed(chunk) if choice.get("index") == index]}
    return Frame(frame.at, frame.name, json.dumps(kept))


def _listed(chunk: Any) -> list[dict[str, Any]]:
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _indices(chunk: Any) -> list[object]:
    return [choice.get("index") for choice in _listed(chunk)]


def _completions(frames: list[Frame]) -> str | None:
    """Every choice finishes once and says nothing after it; one [DONE], the last."""
    finished: dict[object, str] = {}
    seen: set[object] = set()
    for place, frame in enumerate(frames):
        if frame.data.strip() == "[DONE]":
            if place != len(frames) - 1:
                return "an event after [DONE]"
            return None if seen == set(finished) else "a choice without a finish reason"
        chunk = _parsed(frame.data.encode())
        if isinstance(chunk, dict) and isinstance(chunk.get("error"), dict):
            return None if place == len(frames) - 1 else "an event after the error"
        if not isinstance(chunk, dict) or not isinstance(chunk.get("id"), str) or "choices" not in chunk:
            return "a chunk without id or choices"
        for choice in _listed(chunk):
            index = choice.get("index")
            seen.add(index)
            if index in finished:
                return "text after the finish reason"
            if not isinstance(choice.get("text"), str):
                return "a choice without text"
            if choice.get("finish_reason") is not None:
                finished[index] = str(choice["finish_reason"])
    return "no [DONE] at the end"


def _exchange(answer: Answer) -> Exchange:
    return Exchange(path="", sent=None, status=answer.status, kind=answer.kind, body=answer.body)


def _problems(reader: Api, exchange: Exchange) -> str | None:
    problems = reader.read(exchange).problems
    return "; ".join(f"{problem.kind}: {problem.detail}" for problem in problems[:3]) or None


def _parsed(data: bytes) -> Any:
    """JSON, or None; a document `null` is told apart from none nowhere here."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
