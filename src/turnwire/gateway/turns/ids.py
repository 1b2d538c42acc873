"""Fresh ids for turns and calls.

Promise: letters and digits only, since some clients strip everything else; nobody can guess the next one.
"""

from __future__ import annotations

import os
import string

__all__ = ["mint"]

# Sixty-two letters from bytes below four times as many: each is equally likely. The other bytes are passed over.
_LETTERS = 4 * (string.ascii_letters + string.digits).encode() + bytes(8)
_OTHERS = bytes(range(248, 256))


def mint(prefix: str = "", length: int = 24) -> str:
    """A fresh id."""
    letters = b""
    while len(letters) < length:
        letters += os.urandom(length + 4).translate(_LETTERS, _OTHERS)
    return prefix + letters[:length].decode()
