"""The rounds of an answer in which the gateway runs tools, as a turn sees them; see gateway.hosted.rounds.

Promise: a turn knows no more of tools than this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from turnwire.gateway.turns.record import TurnRecord

__all__ = ["Rounds"]


class Rounds(Protocol):
    """The rounds of one answer. `follows` says that another round comes after this one."""

    follows: bool

    @property
    def pending(self) -> bool:
        """Whether the round that just ended has calls of ours."""
        ...

    async def answer(self, put: Callable[[bytes], None]) -> None:
        """Run them."""
        ...

    async def close(self) -> bytes:
        """The end of an answer whose last round called a tool."""
        ...

    async def following(self) -> TurnRecord[Any]:
        """The next round."""
        ...
