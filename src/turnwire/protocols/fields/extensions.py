"""`nvext`: the extensions of NVIDIA Dynamo that a request of any API may carry.

Promise: every member is honoured or noted, by its row in the field table; an unknown one is noted, never refused.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.protocols.context import OUTPUT_BOUND, AgentHints
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.reader import Fields, whole
from turnwire.turns import Sampling, Thinking

__all__ = ["Extensions", "read_extensions"]


class Extensions(msgspec.Struct, frozen=True, kw_only=True):
    """What a request's `nvext` asks for. `dispatch` is its own setting of `tool_call_dispatch`; `report` is what it
    wants to know of its turn, `annotations` what the head of its stream shall say."""

    hints: AgentHints = AgentHints()
    thinking_budget: int | None = None
    greedy: bool = False
    dispatch: Any = None
    report: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    cache_salt: str | None = None

    def thinking(self, thinking: Thinking) -> Thinking:
        """The request's thinking with the budget, unless it has one of its own."""
        if self.thinking_budget is None or thinking.budget is not None:
            return thinking
        return msgspec.structs.replace(thinking, budget=self.thinking_budget)

    def sampling(self, sampling: Sampling) -> Sampling:
        """The request's sampling, greedy where that is asked for."""
        return msgspec.structs.replace(sampling, temperature=0.0) if self.greedy else sampling


_NONE = Extensions()


def read_extensions(fields: Fields) -> Extensions:
    """The extensions of a request."""
    wire = fields.object("nvext")
    salt = _salt(fields.value("cache_salt"), "cache_salt")
    if wire is None:
        return Extensions(cache_salt=salt) if salt else _NONE
    budget = wire.get("max_thinking_tokens") if fields.honours("nvext.max_thinking_tokens") else None
    return Extensions(
        hints=_read_hints(wire),
        thinking_budget=whole(budget, "nvext.max_thinking_tokens", 1),
        greedy=wire.get("greed_sampling") is True,
        dispatch=wire.get("dispatch"),
        report=_names(fields, "extra_fields", TOLD),
        annotations=_annotations(fields),
        cache_salt=_salt(wire.get("cache_salt"), "nvext.cache_salt") or salt,
    )


def _read_hints(nvext: dict[str, Any]) -> AgentHints:
    worker = next(
        (wanted for name in ("backend_instance_id", "decode_worker_id") if type(wanted := nvext.get(name)) is int), None
    )
    wire = nvext.get("agent_hints")
    if not isinstance(wire, dict):
        return AgentHints(worker=worker)
    expected = _number(wire.get("osl"))
    latency = _number(wire.get("latency_sensitivity"))
    return AgentHints(
        priority=_whole(wire.get("priority")),
        tier=_whole(wire.get("strict_priority")),
        expected_output=min(int(expected), OUTPUT_BOUND) if expected is not None and expected >= 1 else None,
        latency_sensitivity=latency,
        read_ahead=wire.get("speculative_prefill") is True,
        worker=worker,
    )


TOLD = ("worker_id", "timing", "stop_reason", "completion_token_ids", "notes")
"""What a client may ask to know of its turn. `notes` is ours, the others are Dynamo's."""

ANNOTATIONS = ("request_id", "formatted_prompt", "token_ids")
"""What the head of a stream may say: its id, and the prompt as text and as token ids."""

_MOST_SALT = 256


def _annotations(fields: Fields) -> tuple[str, ...]:
    names = _names(fields, "annotations", ANNOTATIONS)
    if names and not fields.flag("stream"):
        fields.notes.add("request.field_ignored", "nvext.annotations: only a stream has a place for them")
        return ()
    return names


def _names(fields: Fields, member: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names in a member of `nvext` that mean something here; any other is noted."""
    wanted = (fields.object("nvext") or {}).get(member)
    if wanted is None:
        return ()
    if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
        raise invalid(f"nvext.{member}", "must be a list of names")
    for name in dict.fromkeys(wanted):
        if name not in known:
            fields.notes.add("request.field_ignored", f"nvext.{member}: {name[:64]!r} is not known here")
    return tuple(name for name in known if name in wanted)


def _salt(value: Any, path: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _MOST_SALT:
        raise invalid(path, f"must be a text of at most {_MOST_SALT} characters")
    return value


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    # Bounded before it becomes an integer, so that no float is too large for it.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
        return value
    return None
