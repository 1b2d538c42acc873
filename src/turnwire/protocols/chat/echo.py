"""What a Chat Completions answer must repeat or honour of its request, and how several choices share one answer.

Promise: plain data, filled by decode, read by the encoders and the gateway.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnwire.turns import Usage

__all__ = ["Echo", "SharedAnswer"]


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """`choices` is the request's `n`; `usage` that a stream ends with a usage chunk; `dispatch` how completed calls are
    announced: as named events, or as an extra key on a real delta, which no client trips over. `logprobs` is how many
    rivals are given for each token (None: no log probabilities)."""

    choices: int = 1
    usage: bool = False
    dispatch: Literal["event", "delta"] = "event"
    logprobs: int | None = None


class SharedAnswer:
    """One answer whose choices are generated side by side: how many still run, and what they have cost together. The
    prompt counts once."""

    def __init__(self, choices: int = 1) -> None:
        self._running = choices
        self.usage = Usage(0)
        self.opened = False
        self.documents: dict[int, dict[str, object]] = {}

    def end(self, usage: Usage) -> bool:
        """One choice is over; whether it was the last."""
        self._running -= 1
        total = self.usage
        self.usage = Usage(
            usage.prompt,
            max(total.cached, usage.cached),
            total.output + usage.output,
            total.reasoning + usage.reasoning,
        )
        return self._running == 0
