"""Apertus: calls as a list of objects with the name as key, which may be inside a thought.

Promise: a thought goes on after the calls inside it.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope, Keys
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

DIALECTS = (
    Dialect(
        name="apertus",
        reasoning=Reasoning(("<|inner_prefix|>",), ("<|inner_suffix|>",), calls="pause", mentions=False),
        calls=(Envelope(wrappers=(("<|tools_prefix|>", "<|tools_suffix|>"),), keys=Keys(name_is_key=True)),),
        ends=("<|assistant_end|>", "</s>"),
        turns=("<|assistant_start|>",),
        aliases=("apertus2509",),
        writes=CallForm(
            section=("<|tools_prefix|>[", "]<|tools_suffix|>"), head='{{"{name}": ', tail="}}", between=", "
        ),
        known_by=(Signature(("<|inner_prefix|>",)),),
        ids=("apertus",),
    ),
)
