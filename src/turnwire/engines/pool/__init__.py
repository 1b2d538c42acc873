"""Several workers of one model as one engine: choice, waiting line, health, retry and migration."""

from turnwire.engines.pool.waiting_line import Ticket, WaitingLine

__all__ = ["Ticket", "WaitingLine"]
