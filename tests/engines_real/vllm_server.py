"""Real engines for tests: tools/engines.py, loaded from where it lies."""

from __future__ import annotations

from benchmarks.installers import installer

_TOOLS = installer("engines")

BLOCK: int = _TOOLS.BLOCK
WINDOW: int = _TOOLS.WINDOW
SGLANG_WINDOW: int = _TOOLS.SGLANG_WINDOW
VLLMServer = _TOOLS.VLLMServer
VLLMCore = _TOOLS.VLLMCore
SGLangServer = _TOOLS.SGLangServer
IMAGE_TOKENS: int = _TOOLS.IMAGE_TOKENS
prepare = _TOOLS.prepare
