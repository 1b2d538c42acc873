"""The programs that install real clients and real engines, for benchmarks and tests.

Promise: `tools/NAME.py` is loaded from where it lies, once for a process.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

__all__ = ["installer"]

TOOLS = Path(__file__).resolve().parents[1] / "tools"


@cache
def installer(name: Literal["clients", "engines"]) -> Any:
    """The module `tools/NAME.py`."""
    spec = importlib.util.spec_from_file_location(f"turnwire_tools_{name}", TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
