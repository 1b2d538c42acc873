"""What is said to a nonce.

Promise: it follows from the nonce alone, so that any gap, repeat or mix-up of a stream shows.
"""

from __future__ import annotations

import re

NONCE = re.compile(r"nonce-([0-9a-z]+)")


def said(nonce: str) -> str:
    """What the client is to read: characters of one to four bytes, so that a death can fall inside one."""
    return " ".join(f"{nonce}:{number} café 東京 🙂" for number in range(12)) + f" the end of {nonce}"
