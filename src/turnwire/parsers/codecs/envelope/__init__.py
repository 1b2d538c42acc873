"""Calls written as JSON objects that carry the tool's name and its arguments: the table, its states, its reader.

Promise: whoever describes such a format needs only what is exported here.
"""

from turnwire.parsers.codecs.envelope.reader import EnvelopeCodec
from turnwire.parsers.codecs.envelope.table import Doubts, Envelope, Keys

__all__ = ["Doubts", "Envelope", "EnvelopeCodec", "Keys"]
