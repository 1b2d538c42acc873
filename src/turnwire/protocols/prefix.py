"""What the vendors' diagnostics need to know of a prompt's prefix.

Promise: the least that both say: whether a comparison was made, how it ended, and what was lost.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["PrefixVerdict"]


class PrefixVerdict(Protocol):
    """The comparison of a prompt with the turn that it continues; see `turnwire.continuity`."""

    @property
    def state(self) -> str: ...

    @property
    def found(self) -> bool: ...

    @property
    def cause(self) -> str | None: ...

    @property
    def section(self) -> str | None: ...

    @property
    def shared(self) -> int: ...

    @property
    def lost(self) -> int: ...
