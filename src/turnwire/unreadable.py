"""What decoding raises where bytes or text are no value of the wanted type.

Promise: whoever catches these has caught all that a decoder of msgspec says of its input, which is untrusted: besides
its own errors that a string is not UTF-8, and that values lie in each other too deep.
"""

from __future__ import annotations

import msgspec

__all__ = ["UNREADABLE"]

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
