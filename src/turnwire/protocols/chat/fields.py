"""The fields of an OpenAI request body, read with refusals that name the field.

Promise: shared by Chat Completions and Completions. `null` means absent; a wrong type is an invalid_request failure at
the field's own path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwire.protocols.json_body import any_value, invalid, nesting, open_body
from turnwire.protocols.limits import Limits
from turnwire.turns import Note, Sampling

__all__ = ["SAMPLING_FIELDS", "Fields"]

_NUMBERS: Mapping[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "repetition_penalty": float,
    "seed": int,
}
SAMPLING_FIELDS = frozenset({*_NUMBERS, "stop", "logit_bias"})
"""The fields that `Fields.sampling` reads."""


class Fields:
    """The decoded top-level fields of one request, and the notes taken while reading them."""

    def __init__(self, body: bytes, limits: Limits) -> None:
        opened = open_body(body, limits)
        for name, raw in opened.fields.items():
            if nesting(raw, limits.depth):
                raise invalid(name, f"nested deeper than {limits.depth}")
        self.values = {
            name: value for name, raw in opened.fields.items() if (value := any_value(raw, name)) is not None
        }
        self.limits = limits
        self.notes: list[Note] = list(opened.notes)

    def get(self, name: str, default: Any = None) -> Any:
        """A field's value, whatever it is."""
        return self.values.get(name, default)

    def note_unknown(self, honoured: frozenset[str]) -> None:
        """Every field that nobody here reads is said to be ignored."""
        self.notes += [Note("request.field_ignored", name) for name in self.values if name not in honoured]

    def model(self) -> str:
        """The model's name; empty where the request leaves the choice to the gateway."""
        model = self.get("model")
        if model is not None and not isinstance(model, str):
            raise invalid("model", "must be the name of a model")
        return model or ""

    def boolean(self, name: str) -> bool:
        value = self.get(name, False)
        if not isinstance(value, bool):
            raise invalid(name, "must be true or false")
        return value

    def count(self, name: str, least: int, most: int | None = None) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
            raise invalid(name, f"must be a whole number from {least}" + (f" to {most}" if most else ""))
        return value

    def wants_usage(self) -> bool:
        """Whether a stream is to end with a usage chunk."""
        options = self.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    def sampling(self, *, max_tokens: int | None, logprobs: int | None) -> Sampling:
        """The sampling wishes; how long and with which log probabilities differs by API."""
        values: dict[str, Any] = {}
        for name, kind in _NUMBERS.items():
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise invalid(name, "must be a number")
            values[name] = kind(value)
        return Sampling(max_tokens=max_tokens, stop=self._stops(), logit_bias=self._bias(), logprobs=logprobs, **values)

    def _stops(self) -> tuple[str, ...]:
        stop = self.get("stop", [])
        stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else None
        if stops is None or not all(isinstance(text, str) for text in stops):
            raise invalid("stop", "must be a string or a list of strings")
        if len(stops) > self.limits.stop_sequences:
            raise invalid("stop", f"{len(stops)} stop strings; the limit is {self.limits.stop_sequences}")
        return tuple(text for text in stops if text)

    def _bias(self) -> dict[str, float]:
        bias = self.get("logit_bias", {})
        if not isinstance(bias, dict) or not all(_is_number(value) for value in bias.values()):
            raise invalid("logit_bias", "must map token ids to numbers")
        return {str(key): float(value) for key, value in bias.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
