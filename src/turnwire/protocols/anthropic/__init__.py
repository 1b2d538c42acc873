"""The Messages API: decode a request, encode a turn, phrase an error.

Promise: what is exported here is the codec's public face; see docs/anthropic.md for every field and event.
"""

from turnwire.protocols.anthropic.answer.count import encode_count
from turnwire.protocols.anthropic.answer.document import DocumentEncoder
from turnwire.protocols.anthropic.answer.errors import error_reply
from turnwire.protocols.anthropic.answer.models import model_object, models_page
from turnwire.protocols.anthropic.answer.stream import StreamEncoder
from turnwire.protocols.anthropic.echo import Echo, ThreadLink
from turnwire.protocols.anthropic.hosted import HostedToolUnavailable, unavailable_reply
from turnwire.protocols.anthropic.request.decode import decode, decode_count
from turnwire.protocols.anthropic.threads import (
    KeptThread,
    ThreadRecord,
    continue_thread,
    kept_thread,
    read_record,
    record_turn,
    thread_key,
)

__all__ = [
    "DocumentEncoder",
    "Echo",
    "HostedToolUnavailable",
    "KeptThread",
    "StreamEncoder",
    "ThreadLink",
    "ThreadRecord",
    "continue_thread",
    "decode",
    "decode_count",
    "encode_count",
    "error_reply",
    "kept_thread",
    "model_object",
    "models_page",
    "read_record",
    "record_turn",
    "thread_key",
    "unavailable_reply",
]
