"""The Messages API: decode a request, encode a turn, phrase an error.

Promise: what is exported here is the codec's public face; see docs/anthropic.md for every field and event.
"""

from turnwire.protocols.anthropic.count import encode_count
from turnwire.protocols.anthropic.document import DocumentEncoder
from turnwire.protocols.anthropic.echo import Echo, ThreadLink
from turnwire.protocols.anthropic.errors import error_reply
from turnwire.protocols.anthropic.models import model_object, models_page
from turnwire.protocols.anthropic.request import decode, decode_count
from turnwire.protocols.anthropic.stream import StreamEncoder
from turnwire.protocols.anthropic.threads import (
    Reply,
    ThreadRecord,
    ThreadStore,
    continue_thread,
    keep_thread,
    record_turn,
    resume_thread,
)

__all__ = [
    "DocumentEncoder",
    "Echo",
    "Reply",
    "StreamEncoder",
    "ThreadLink",
    "ThreadRecord",
    "ThreadStore",
    "continue_thread",
    "decode",
    "decode_count",
    "encode_count",
    "error_reply",
    "keep_thread",
    "model_object",
    "models_page",
    "record_turn",
    "resume_thread",
]
