"""The Completions API: a prompt as it is, straight to the engine; no template, no parser.

Promise: what is exported here is the codec's public face; see docs/chat.md.
"""

from turnwire.protocols.completions.answer import DocumentEncoder, SharedAnswer, StreamEncoder
from turnwire.protocols.completions.request import Asked, decode

__all__ = ["Asked", "DocumentEncoder", "SharedAnswer", "StreamEncoder", "decode"]
