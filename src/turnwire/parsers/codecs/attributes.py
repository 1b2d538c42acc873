"""Attributes in the header of a tag: `name="edit"`, with either kind of quotes or none.

Promise: reading an attribute takes time linear in the header, which its callers bound.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["read_attribute"]


@lru_cache(maxsize=64)
def _attribute(name: str) -> re.Pattern[str]:
    return re.compile(rf"""(?:^|[\s"']){name}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""")


def read_attribute(header: str, name: str) -> str | None:
    """The value of an attribute, or None where the header does not have it."""
    found = _attribute(name).search(header)
    return None if found is None else next((value for value in found.groups() if value is not None), None)
