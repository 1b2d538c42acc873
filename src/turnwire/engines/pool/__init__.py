"""Several workers of one model as one engine: choice, waiting line, health, retry and migration."""

from turnwire.engines.pool.choice import Candidate, choose
from turnwire.engines.pool.prefix_index import PrefixIndex, block_hashes
from turnwire.engines.pool.waiting_line import Ticket, WaitingLine

__all__ = ["Candidate", "PrefixIndex", "Ticket", "WaitingLine", "block_hashes", "choose"]
