"""Options of a Responses request: sampling, reasoning, output format, and the field readers they share.

Promise: a value of the wrong kind is refused by the name of its field; an absent one means the model's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnwire.protocols.json_body import invalid
from turnwire.protocols.limits import Limits
from turnwire.turns import OutputFormat, Sampling, Thinking

__all__ = ["flag", "object_field", "output_format", "sampling", "string", "thinking"]


def sampling(fields: Mapping[str, Any], limits: Limits) -> Sampling:
    """Sampling wishes: OpenAI's own fields and the ones that open engines add."""
    stop = fields.get("stop")
    if isinstance(stop, str):
        stop = [stop]
    if stop is not None and not (isinstance(stop, list) and all(isinstance(s, str) for s in stop)):
        raise invalid("stop", "must be a string or a list of strings")
    if stop and len(stop) > limits.stop_sequences:
        raise invalid("stop", f"has {len(stop)} strings; the limit is {limits.stop_sequences}")
    return Sampling(
        max_tokens=_integer(fields, "max_output_tokens", 1),
        temperature=_number(fields, "temperature", 0.0, 2.0),
        top_p=_number(fields, "top_p", 0.0, 1.0),
        top_k=_integer(fields, "top_k", -1),
        min_p=_number(fields, "min_p", 0.0, 1.0),
        presence_penalty=_number(fields, "presence_penalty", -2.0, 2.0),
        frequency_penalty=_number(fields, "frequency_penalty", -2.0, 2.0),
        repetition_penalty=_number(fields, "repetition_penalty", 0.0, 10.0),
        seed=_integer(fields, "seed", None),
        stop=tuple(s for s in stop or () if s),
    )


def thinking(fields: Mapping[str, Any]) -> Thinking:
    """What is wanted of reasoning; effort `none` turns it off."""
    reasoning = object_field(fields, "reasoning")
    effort = reasoning.get("effort")
    if effort is not None and not isinstance(effort, str):
        raise invalid("reasoning.effort", "must be a string")
    history: Literal["keep"] | None = "keep" if reasoning.get("context") == "all_turns" else None
    if effort is None:
        return Thinking(history=history)
    if effort == "none":
        return Thinking(mode="off", effort=effort, history=history)
    return Thinking(mode="on", effort=effort, history=history)


def output_format(fields: Mapping[str, Any]) -> OutputFormat | None:
    """The structured output that is asked for, if any."""
    form = object_field(fields, "text").get("format")
    if form is None:
        return None
    if not isinstance(form, dict):
        raise invalid("text.format", "must be an object")
    kind = form.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return OutputFormat(kind="json_object")
    if kind != "json_schema":
        raise invalid("text.format.type", "must be text, json_object or json_schema")
    schema = form.get("schema")
    if not isinstance(schema, dict):
        raise invalid("text.format.schema", "must be a JSON schema object")
    name = form.get("name")
    return OutputFormat(
        kind="json_schema",
        schema=schema,
        name=name if isinstance(name, str) and name else "output",
        strict=form.get("strict") is not False,
    )


def string(fields: Mapping[str, Any], name: str) -> str:
    """A text field; empty when absent."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(name, "must be a string")
    return value


def flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    """A true-or-false field."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(name, "must be true or false")
    return value


def object_field(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object field; empty when absent."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(name, "must be an object")
    return value


def _number(fields: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(name, f"must be a number between {low:g} and {high:g}")
    return float(value)


def _integer(fields: Mapping[str, Any], name: str, low: int | None) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
        raise invalid(name, "must be a whole number" + (f" of at least {low}" if low is not None else ""))
    return value
