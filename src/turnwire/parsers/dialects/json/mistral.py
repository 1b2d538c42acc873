"""Mistral: `[TOOL_CALLS]` before a JSON list (up to v7) or before name, id and arguments (v11 and later).

Promise: every version of the format reads, and the newest is what calls are written in.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Doubts, Envelope, Keys
from turnwire.parsers.codecs.named import Named
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

MISTRAL = Named(
    header=r"\s*(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*(?P<id>[^\s\[\]{}]*)\s*)?(?:\[ARGS\])?(?P<rest>\s*)",
    call_open=("[TOOL_CALLS]",),
    separators=("[ARGS]", "[CALL_ID]"),
    hopeless=r"\s*[^\s\[\]{}]+\s+[^\s\[{]",
    lists=Envelope(wrappers=(("[TOOL_CALLS]", "[/TOOL_CALLS]"),), keys=Keys(id=("id",)), doubts=Doubts(may_end=True)),
)

DIALECTS = (
    Dialect(
        name="mistral",
        reasoning=Reasoning(("[THINK]", "<think>"), ("[/THINK]", "</think>")),
        calls=(MISTRAL,),
        ends=("</s>",),
        aliases=("mistral_pre_v11", "mistral_v11", "mistral_v13", "ministral", "magistral", "devstral"),
        reasoning_aliases=("mistral_think",),
        writes=CallForm(head="[TOOL_CALLS]{name}[ARGS]", tail=""),
        known_by=(Signature(("[TOOL_CALLS]",)),),
        ids=(
            "mistral",
            "mixtral",
            "ministral",
            "magistral",
            "devstral",
            "codestral",
            "pixtral",
            "voxtral",
            "leanstral",
        ),
    ),
)
