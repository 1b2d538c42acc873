"""Fresh ids for turns and calls.

Promise: letters and digits only, since some clients strip everything else; nobody can guess the next one.
"""

from __future__ import annotations

import secrets
import string

__all__ = ["mint"]

_ALPHABET = string.ascii_letters + string.digits
# Sixty-two letters from bytes below four times as many: each is equally likely.
_LETTERS = {byte: _ALPHABET[byte % 62] for byte in range(248)}


def mint(prefix: str = "", length: int = 24) -> str:
    """A fresh id."""
    letters: list[str] = []
    while len(letters) < length:
        letters += [_LETTERS[byte] for byte in secrets.token_bytes(length + 4) if byte < 248]
    return prefix + "".join(letters[:length])
