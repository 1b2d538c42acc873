"""Messages whose header says what their body is: the table, its states, its reader, and calls in message bodies.

Promise: whoever describes a routed format needs only what is exported here.
"""

from turnwire.parsers.codecs.channels.bare import BareChannels
from turnwire.parsers.codecs.channels.states import Header, Route
from turnwire.parsers.codecs.channels.table import Channels, Hints, Stages

__all__ = ["BareChannels", "Channels", "Header", "Hints", "Route", "Stages"]
