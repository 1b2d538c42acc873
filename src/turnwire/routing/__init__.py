"""Which worker gets the turn: prefix overlap, load, session, priority."""

from turnwire.routing.choice import Candidate, choose
from turnwire.routing.overlap import PrefixIndex, block_hashes
from turnwire.routing.waiting import Ticket, WaitingLine

__all__ = ["Candidate", "PrefixIndex", "Ticket", "WaitingLine", "block_hashes", "choose"]
