"""Turns written as nested elements between special tokens (XTML): the table, its states, its reader.

Promise: whoever describes such a format needs only what is exported here.
"""

from turnwire.parsers.codecs.xtml.table import Xtml

__all__ = ["Xtml"]
