"""Calls written as tags around each argument: the table, its states, its reader, and how a value's end is found.

Promise: whoever describes such a format needs only what is exported here.
"""

from turnwire.parsers.codecs.tagged.plain import PlainTags
from turnwire.parsers.codecs.tagged.table import Headers, Repairs, Tagged, Values

__all__ = ["Headers", "PlainTags", "Repairs", "Tagged", "Values"]
