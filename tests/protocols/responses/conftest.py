"""What the Responses tests share: a request decoded, a turn encoded, and the checker run over it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from turnwire.protocols import responses
from turnwire.protocols.wire import Inbound, TurnFacts
from turnwire.turns import Event, Usage

from .conformance import check_events, parse_stream

FACTS = TurnFacts(turn_id="T0turn", model="m1", created=1_700_000_000)


@pytest.fixture
def facts() -> TurnFacts:
    return FACTS


@pytest.fixture
def decode() -> Callable[..., Inbound]:
    """Decode a request given as fields; `model` is filled in."""

    def run(*, headers: dict[str, str] | None = None, stored: responses.Stored | None = None, **fields: Any) -> Inbound:
        body = msgspec.json.encode({"model": "m1", "input": "hi", **fields})
        return responses.decode(body, headers or {}, stored=stored)

    return run


@pytest.fixture
def answer(decode: Callable[..., Inbound]) -> Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Encode a turn both ways. Gives the stream's events and the document, after the checker found nothing."""

    def run(events: Sequence[Event], cuts: Sequence[int] = (), **fields: Any) -> tuple[list[Any], dict[str, Any]]:
        echo = decode(**fields).echo
        stream = responses.stream_encoder(FACTS, echo, now=lambda: 1_700_000_009.5)
        document = responses.document_encoder(FACTS, echo, now=lambda: 1_700_000_009.5)
        borders = [0, *cuts, len(events)]
        batches = [events[a:b] for a, b in itertools.pairwise(borders)]
        data = stream.start(Usage(7)) + b"".join(stream.feed(batch) for batch in batches)
        parsed, problems = parse_stream(data)
        assert problems == []
        assert check_events(parsed) == []
        assert document.start(Usage(7)) == b""
        whole = msgspec.json.decode(b"".join(document.feed(batch) for batch in batches))
        if not fields.get("input") or "compaction_trigger" not in str(fields["input"]):
            assert whole == parsed[-1]["response"]
        return parsed, whole

    return run
