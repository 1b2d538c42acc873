"""What the docs site does beyond mkdocs: pages that the navigation does not name yet get a place in it.

Promise: no page is ever left out of the site; where it belongs better, mkdocs.yml says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["on_config"]

_REST = "More"


def on_config(config: Any) -> Any:
    """Add the pages that the navigation lacks."""
    named = set(_pages(config["nav"]))
    folder = Path(config["docs_dir"])
    rest = sorted(
        page for page in (path.relative_to(folder).as_posix() for path in folder.rglob("*.md")) if page not in named
    )
    if rest:
        config["nav"] = [*config["nav"], {_REST: rest}]
    return config


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages(part)
