"""The hops of a token that docs/structure.md lists are in the source, where it says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_HOP = re.compile(r"`(\w+)\.(\w+)` \(`([\w/]+)\.py`\)")


def test_every_hop_is_where_the_page_says() -> None:
    page = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    section = page.partition("## From socket to socket")[2].partition("\n## ")[0]
    hops = _HOP.findall(section)
    assert len(hops) >= 9
    for owner, method, path in hops:
        module = importlib.import_module("turnwire." + path.replace("/", "."))
        assert callable(getattr(getattr(module, owner), method))
