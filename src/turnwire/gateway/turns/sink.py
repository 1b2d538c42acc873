"""Where a turn's bytes go, and what the place they go to says back.

Promise: nothing here waits. A sink takes what it is given, says when its reader falls behind and when it is gone.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Reader", "Sink"]


class Reader(Protocol):
    """What a sink reports to: the turn that writes into it."""

    def pause(self) -> None:
        """The client reads more slowly than the turn writes."""
        ...

    def resume(self) -> None:
        """The client has caught up."""
        ...

    def gone(self) -> None:
        """There is no client any more."""
        ...


class Sink(Protocol):
    """One answer on its way to one client. `full`: what was written has not been taken yet."""

    @property
    def full(self) -> bool: ...

    def attach(self, reader: Reader) -> None:
        """Report to `reader` from now on; several turns may write one answer."""
        ...

    def open(self) -> None:
        """Send the status line and headers; called once, before the first write."""
        ...

    def write(self, data: bytes) -> None:
        """Send more of the answer; bytes for a client that is gone are dropped."""
        ...

    def write_last(self, data: bytes) -> None:
        """The same for the last bytes of a turn: an answer that ends with them may say so in the same write."""
        ...
