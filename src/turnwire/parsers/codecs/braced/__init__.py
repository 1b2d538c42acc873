"""Calls in Gemma's notation (`call:name{key:value}`): the table, its reader, the object, and how a string ends.

Promise: whoever describes such a format needs only what is exported here.
"""

from turnwire.parsers.codecs.braced.table import Braced

__all__ = ["Braced"]
