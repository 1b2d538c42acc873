"""The answer to a token count.

Promise: the one object that clients of `count_tokens` read.
"""

from __future__ import annotations

__all__ = ["encode_count"]


def encode_count(tokens: int) -> bytes:
    """The body of a `count_tokens` answer."""
    return b'{"input_tokens":%d}' % tokens
