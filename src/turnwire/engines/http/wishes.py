"""Sampling wishes under the names that OpenAI's API and the engines after it have for them.

Promise: only a wish that was made is passed on, so the engine's own defaults stand for all others.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwire.turns import Sampling

__all__ = ["made", "sampling_wishes"]


def made(wishes: Mapping[str, object | None]) -> dict[str, object]:
    """The wishes that were made."""
    return {name: value for name, value in wishes.items() if value is not None}


def sampling_wishes(sampling: Sampling) -> dict[str, object | None]:
    """How the next token is drawn; a wish that was not made is None."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "logit_bias": sampling.logit_bias or None,
    }
