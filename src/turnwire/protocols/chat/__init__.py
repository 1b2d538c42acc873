"""The Chat Completions API: decode a request, encode a turn, phrase an error.

Promise: what is exported here is the codec's public face; see docs/chat.md for every field and chunk.
"""

from turnwire.protocols.chat.document import DocumentEncoder
from turnwire.protocols.chat.echo import Echo, SharedAnswer
from turnwire.protocols.chat.errors import error_reply
from turnwire.protocols.chat.request import decode
from turnwire.protocols.chat.stream import StreamEncoder

__all__ = ["DocumentEncoder", "Echo", "SharedAnswer", "StreamEncoder", "decode", "error_reply"]
