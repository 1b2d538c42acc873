"""Apriel: reasoning steps in prose up to a marker for the final response, calls as a JSON list.

Promise: what comes before the final response is thought, and no marker of it shows.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope, Keys
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import json_list

__all__ = ["DIALECTS"]

CALLS = Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),), keys=Keys(id=("id",)))
STEPS = "Here are my reasoning steps:\n"
FORM = json_list("<tool_calls>[", "]</tool_calls>")
FINAL = ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]")

DIALECTS = (
    Dialect(
        name="apriel_1_5",
        reasoning=Reasoning(("<thinking>", STEPS), ("</thinking>", FINAL[0])),
        calls=(CALLS,),
        wrappers=FINAL,
        ends=("<|end|>",),
        aliases=("apriel", "apriel1_5"),
        writes=FORM,
        known_by=(Signature((FINAL[0],)),),
        ids=("apriel-1.5", "apriel"),
    ),
    Dialect(
        name="apriel_1_6",
        reasoning=Reasoning((STEPS,), (FINAL[0],), by_default=True),
        calls=(CALLS,),
        wrappers=FINAL,
        ends=("<|end|>",),
        turns=("<|begin_assistant|>",),
        aliases=("apriel1_6",),
        writes=FORM,
        known_by=(Signature((FINAL[0], "Here are my reasoning steps:")),),
        ids=("apriel-1.6",),
    ),
)
