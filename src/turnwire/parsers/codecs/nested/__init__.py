"""Calls written as tags within tags: the table, its states, its reader.

Promise: whoever describes such a format needs only what is exported here.
"""

from turnwire.parsers.codecs.nested.table import Nested

__all__ = ["Nested"]
