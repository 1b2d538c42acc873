"""Sampling wishes of a request: one table of bounds for every API.

Promise: what is out of bounds is refused by the name of its field; an absent field means the model's own default.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.reader import Fields
from turnwire.turns import Sampling

__all__ = ["read_logit_bias", "read_sampling"]

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.0, 10.0),
}
_MOST_BIAS = 100.0
_MOST_BIASED = 1024


def read_sampling(
    fields: Fields,
    *,
    max_tokens: int | None,
    stop: tuple[str, ...],
    logprobs: int | None = None,
    logit_bias: dict[str, float] | None = None,
) -> Sampling:
    """The sampling wishes. How long, until where and with which log probabilities differs by API."""
    numbers = {name: fields.number(name, *_BOUNDS[name]) for name in fields.sent(_BOUNDS)}
    return Sampling(
        max_tokens=max_tokens,
        top_k=fields.whole("top_k", -1),
        seed=fields.whole("seed"),
        stop=stop,
        logprobs=logprobs,
        logit_bias=logit_bias or {},
        **numbers,
    )


def read_logit_bias(fields: Fields) -> dict[str, float]:
    """`logit_bias`: token ids, as the strings that JSON keys are, and how much each is favoured."""
    bias = fields.object("logit_bias") or {}
    if len(bias) > _MOST_BIASED:
        raise invalid("logit_bias", f"{len(bias)} tokens; the limit is {_MOST_BIASED}")
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise invalid("logit_bias", f"{key[:32]!r} is not a token id; keys are whole numbers from 0")
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST_BIAS <= value <= _MOST_BIAS:
            raise invalid(f"logit_bias.{key}", f"must be a number from {-_MOST_BIAS:g} to {_MOST_BIAS:g}")
    return {key: float(value) for key, value in bias.items()}
