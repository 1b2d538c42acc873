"""The choice among workers: the least work left to do wins.

Promise: a pure function of the candidates' states; ties go to the session's last worker, then to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Candidate", "choose"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the choice sees it. `cached` and `prompt` are in blocks; `active` counts running turns and `limit`
    how many may run."""

    index: int
    prompt: int
    cached: int
    active: int
    limit: int
    sticky: bool = False


def _cost(candidate: Candidate, prompt_weight: float) -> float:
    # A running turn delays ours by about as much as a few blocks of prefill; a full worker only takes what waits.
    full = 1e9 if candidate.active >= candidate.limit else 0.0
    return full + prompt_weight * (candidate.prompt - candidate.cached) + 4.0 * candidate.active


def choose(candidates: Sequence[Candidate], *, prompt_weight: float = 1.0) -> int | None:
    """The index of the best candidate that has room, or None when all are full."""
    best = min(
        candidates,
        key=lambda c: (_cost(c, prompt_weight), not c.sticky, c.index),
        default=None,
    )
    if best is None or best.active >= best.limit:
        return None
    return best.index
