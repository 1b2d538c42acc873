"""What may be wrong with the name or file of a dialect.

Promise: each message says what to change.
"""

from __future__ import annotations

__all__ = ["DialectFileError", "UnknownDialect"]


class UnknownDialect(LookupError):
    """No dialect has this name. `close` are the names nearest to it."""

    def __init__(self, name: str, close: tuple[str, ...] = (), what: str = "dialect", message: str = "") -> None:
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        super().__init__(message or f"there is no {what} called {name!r}{hint} (turnwire dialects lists all names)")
        self.name = name
        self.close = close


class DialectFileError(UnknownDialect):
    """A file or an installed package that brings no dialect."""

    def __init__(self, source: str, message: str) -> None:
        super().__init__(source, message=message)
