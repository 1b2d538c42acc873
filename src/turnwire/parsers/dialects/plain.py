"""Models that only write text, and the plain thought in tags."""

from __future__ import annotations

from turnwire.parsers.dialect import Dialect, Reasoning

__all__ = ["DIALECTS"]

DIALECTS = (
    Dialect(name="plain", aliases=("none", "text", "passthrough")),
    Dialect(name="think", reasoning=Reasoning(), aliases=("basic", "exaone", "holo2", "rwkv")),
)
