"""Apriel: reasoning steps in prose up to a marker for the final response, calls as a JSON list."""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.dialect import Dialect, Reasoning

__all__ = ["DIALECTS"]

CALLS = Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),), id_keys=("id",))
STEPS = "Here are my reasoning steps:\n"
FINAL = ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]")

DIALECTS = (
    Dialect(
        name="apriel_1_5",
        reasoning=Reasoning(("<thinking>", STEPS), ("</thinking>", FINAL[0])),
        calls=(CALLS,),
        wrappers=FINAL,
        ends=("<|end|>",),
        aliases=("apriel", "apriel1_5"),
    ),
    Dialect(
        name="apriel_1_6",
        reasoning=Reasoning((STEPS,), (FINAL[0],), by_default=True),
        calls=(CALLS,),
        wrappers=FINAL,
        ends=("<|end|>",),
        turns=("<|begin_assistant|>",),
        aliases=("apriel1_6",),
    ),
)
