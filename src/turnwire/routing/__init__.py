"""Which worker gets the turn: prefix overlap, load, session, priority."""

from .choice import Candidate, choose
from .overlap import PrefixIndex, block_hashes
from .waiting import Ticket, WaitingLine

__all__ = ["Candidate", "PrefixIndex", "Ticket", "WaitingLine", "block_hashes", "choose"]
