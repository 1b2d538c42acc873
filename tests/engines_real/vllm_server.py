"""Real engines for tests: tools/engines.py, loaded from where it lies."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[2] / "tools" / "engines.py"
_SPEC = importlib.util.spec_from_file_location("turnwire_tools_engines", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
_TOOLS = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _TOOLS
_SPEC.loader.exec_module(_TOOLS)

BLOCK: int = _TOOLS.BLOCK
WINDOW: int = _TOOLS.WINDOW
SGLANG_WINDOW: int = _TOOLS.SGLANG_WINDOW
VLLMServer = _TOOLS.VLLMServer
VLLMCore = _TOOLS.VLLMCore
SGLangServer = _TOOLS.SGLangServer
IMAGE_TOKENS: int = _TOOLS.IMAGE_TOKENS
prepare = _TOOLS.prepare
