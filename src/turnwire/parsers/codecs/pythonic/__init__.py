"""Calls written as Python: the table, its states, its reader, and the values.

Promise: whoever describes such a format needs only what is exported here.
"""

from turnwire.parsers.codecs.pythonic.table import PythonCalls

__all__ = ["PythonCalls"]
