"""The Messages API: decode a request, encode a turn, phrase an error.

Promise: what is exported here is the codec's public face; see docs/anthropic.md for every field and event.
"""

from turnwire.protocols.anthropic.count import encode_count
from turnwire.protocols.anthropic.document import DocumentEncoder
from turnwire.protocols.anthropic.echo import Echo, ThreadLink
from turnwire.protocols.anthropic.errors import error_reply
from turnwire.protocols.anthropic.request import decode, decode_count
from turnwire.protocols.anthropic.stream import StreamEncoder

__all__ = [
    "DocumentEncoder",
    "Echo",
    "StreamEncoder",
    "ThreadLink",
    "decode",
    "decode_count",
    "encode_count",
    "error_reply",
]
