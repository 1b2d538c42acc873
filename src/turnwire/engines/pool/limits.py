"""What bounds a pool, and what it counts.

Promise: values alone; every bound has a default.
"""

from __future__ import annotations

import msgspec

from turnwire.engines.pool.after_failure import Budget

__all__ = ["PoolLimits", "PoolStatistics"]


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Concurrency per worker; how many may wait, and for how long; for how long while no worker takes turns
    (`recovery`); how many seconds without a first token (at least) or without a next one make a worker suspect."""

    concurrency: int = 256
    queue: int = 1024
    queue_timeout: float = 120.0
    recovery: float = 10.0
    first_token: float = 10.0
    stall: float = 20.0
    budget: Budget = Budget()


class PoolStatistics(msgspec.Struct):
    """Counters for the metrics page. `aborts` are generations that were stopped before their end, `left_prefill` those
    of them that had said nothing yet; `left_queue` are turns that gave up their place in the line; `moved_late` are
    turns that left a silent worker."""

    retries: int = 0
    migrations: int = 0
    migrations_failed: int = 0
    moved_late: int = 0
    refused: int = 0
    aborts: int = 0
    left_prefill: int = 0
    left_queue: int = 0
