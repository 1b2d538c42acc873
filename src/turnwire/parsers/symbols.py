"""What tables of states are made of: the states, and what leads from one to another.

Promise: a symbol is one object in a process and is looked up as that, at the speed of a table; `Enum` itself would
hash a member's name, by a call in Python for each step of each token.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["Symbol"]


class Symbol(Enum):
    """The base of every such set of names."""

    __hash__ = object.__hash__
