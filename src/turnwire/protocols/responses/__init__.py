"""The OpenAI Responses API: requests in, events and response objects out.

Promise: a Responses request survives as one. Items keep their order, calls come back in the client's own names and
kinds, and every reasoning item carries what the next turn needs to be replayed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.responses.answer.errors import error_reply
from turnwire.protocols.responses.answer.stream import DocumentEncoder, StreamEncoder, response_id
from turnwire.protocols.responses.compaction.encoder import CompactedEncoder, CompactionStreamEncoder
from turnwire.protocols.responses.compaction.summary import (
    SUMMARY_PROMPT,
    compaction_item,
    read_summary,
    summary_request,
)
from turnwire.protocols.responses.echo import Echo, ResponseJson, no_fields
from turnwire.protocols.responses.request.decode import (
    RequestBody,
    decode,
    decode_request,
    is_codex,
    read_request,
)
from turnwire.protocols.responses.stored import Stored, StoredResponse, continued, history, item_page, with_ids
from turnwire.protocols.responses.tools import Origin, Toolbox
from turnwire.protocols.wire import ErrorReply, Inbound, TurnFacts, TurnFailure
from turnwire.turns import Conversation, Usage

__all__ = [
    "SUMMARY_PROMPT",
    "CompactedEncoder",
    "CompactionStreamEncoder",
    "DocumentEncoder",
    "Echo",
    "Origin",
    "RequestBody",
    "ResponseJson",
    "Stored",
    "StoredResponse",
    "StreamEncoder",
    "Toolbox",
    "compaction_item",
    "continued",
    "decode",
    "decode_request",
    "document_encoder",
    "early_refusal",
    "error_reply",
    "history",
    "item_page",
    "read_request",
    "read_summary",
    "refusal",
    "response_id",
    "stream_encoder",
    "summary_request",
    "with_ids",
]


def stream_encoder(
    facts: TurnFacts, echo: Echo, *, now: Callable[[], float] | None = None, framing: Framing = SSE
) -> StreamEncoder:
    """The encoder of a streaming answer."""
    return (CompactionStreamEncoder if echo.compaction else StreamEncoder)(facts, echo, now=now, framing=framing)


def document_encoder(facts: TurnFacts, echo: Echo, *, now: Callable[[], float] | None = None) -> DocumentEncoder:
    """The encoder of an answer in one piece."""
    return DocumentEncoder(stream_encoder(facts, echo, now=now))


def early_refusal(failure: TurnFailure, headers: Mapping[str, str]) -> ErrorReply:
    """A failure before the body was read. Codex always streams, and waits only when a stream tells it to."""
    if failure.kind == "rate_limited" and is_codex(headers, None):
        facts = TurnFacts(turn_id="refused", model="", created=0)
        inbound = Inbound(
            conversation=Conversation(model="", messages=()),
            stream=True,
            echo=Echo(fields=no_fields(), codex=True),
        )
        return refusal(failure, inbound, facts)
    return error_reply(failure)


def refusal(failure: TurnFailure, inbound: Inbound[Echo], facts: TurnFacts) -> ErrorReply:
    """A failure of a decoded request before the first byte of its answer. On a stream an overflow is a
    `response.failed` event, and so is a rate limit for Codex: only then do the clients compact, or wait."""
    echo = inbound.echo
    if inbound.stream:
        told = failure.kind == "context_overflow" or (failure.kind == "rate_limited" and echo.codex)
        if told:
            encoder = StreamEncoder(facts, echo)
            body = encoder.start(Usage(failure.prompt_tokens or 0)) + encoder.fail(failure)
            return ErrorReply(status=200, body=body, media_type=encoder.media_type)
    return error_reply(failure)
