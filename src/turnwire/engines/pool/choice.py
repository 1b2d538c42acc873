"""The choice among workers: the soundest that has room, and of these the one with the least work left to do.

Promise: a pure function of the candidates' states; ties go to the session's last worker, then to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Candidate", "choose"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the choice sees it. `cached` and `prompt` are in blocks; `active` counts running turns and `limit`
    how many may run; of two `doubts` the smaller is preferred, whatever the load."""

    index: int
    prompt: int
    cached: int
    active: int
    limit: int
    doubts: int = 0
    sticky: bool = False


def _cost(candidate: Candidate) -> float:
    # A running turn delays ours by about as much as a few blocks of prefill.
    return (candidate.prompt - candidate.cached) + 4.0 * candidate.active


def choose(candidates: Sequence[Candidate]) -> int | None:
    """The index of the best candidate that has room, or None when all are full."""
    best = min(
        (candidate for candidate in candidates if candidate.active < candidate.limit),
        key=lambda c: (c.doubts, _cost(c), not c.sticky, c.index),
        default=None,
    )
    return None if best is None else best.index
