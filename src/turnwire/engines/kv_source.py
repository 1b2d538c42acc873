"""Where an engine publishes what its prefix cache holds.

Promise: an engine's own description is understood as vLLM and SGLang write it, whether it binds the address or connects
to it; a description of anything else gives no source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["KVSource", "kv_source"]

_BINDS = re.compile(r"tcp://(\*|0\.0\.0\.0|\[?::\]?):(\d+)")
_CONNECTS = re.compile(r"tcp://(\[[^\]]+\]|[^:/]+):(\d+)")


class KVSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where events come from, and what was missed from. `connects`: the engine connects to `endpoint`, so whoever
    listens binds it."""

    endpoint: str
    replay: str | None = None
    topic: str = ""
    connects: bool = False


def kv_source(told: Mapping[str, object], host: str, rank: int = 0) -> KVSource | None:
    """The source that an engine on `host` describes; each further rank has the next port."""
    endpoint, replay, topic = told.get("endpoint"), told.get("replay_endpoint"), told.get("topic")
    if told.get("publisher") != "zmq" or told.get("enable_kv_cache_events") is False or not isinstance(endpoint, str):
        return None
    place = _place(endpoint, host, rank)
    if place is None:
        return None
    return KVSource(
        endpoint=place,
        replay=_place(replay, host, rank) if isinstance(replay, str) else None,
        topic=topic if isinstance(topic, str) else "",
        connects=_BINDS.fullmatch(endpoint) is None,
    )


def _place(told: str, host: str, rank: int) -> str | None:
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    if found := _BINDS.fullmatch(told):
        return f"tcp://{shown}:{int(found[2]) + rank}"
    if found := _CONNECTS.fullmatch(told):
        return f"tcp://{found[1]}:{int(found[2]) + rank}"
    return None
