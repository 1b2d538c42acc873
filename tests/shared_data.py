"""Where the material lies that is shared between projects, for tests that read it when it is at hand.

`TURNWIRE_SHARED` names the folder; otherwise it is looked for beside the checkout. Tests that need it skip without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["needs_shared", "shared_folder"]


def shared_folder(name: str) -> Path | None:
    """The folder of that name in the shared material, if it is at hand."""
    given = os.environ.get("TURNWIRE_SHARED")
    places = [Path(given)] if given else [parent / "shared" for parent in Path(__file__).resolve().parents]
    return next((place / name for place in places if (place / name).is_dir()), None)


def needs_shared(name: str) -> pytest.MarkDecorator:
    """Skips a test, visibly, where that folder is not at hand."""
    return pytest.mark.skipif(shared_folder(name) is None, reason=f"the shared {name} are not at hand")
