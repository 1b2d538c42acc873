"""GigaChat 3: a JSON call after a change of role (3.0) or after a marker (3.1).

Promise: each reads the other's calls too; they differ in what they are made to write.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.dialect import Dialect, Signature
from turnwire.parsers.writing import json_object

__all__ = ["DIALECTS"]

ROLE = "function call<|role_sep|>"
CALLS = Envelope(
    wrappers=(
        ("<|function_call|>", ""),
        (f"<|message_sep|>\n\n{ROLE}", ""),
        (f"<|message_sep|>\n{ROLE}", ""),
        (f"<|message_sep|>{ROLE}", ""),
        (ROLE, ""),
    )
)
WRAPPERS = ("assistant<|role_sep|>",)
ENDS = ("</s>", "<|message_sep|>")
TURNS = ("<|message_sep|>", "<|role_sep|>")

DIALECTS = (
    Dialect(
        name="gigachat3",
        calls=(CALLS,),
        wrappers=WRAPPERS,
        ends=ENDS,
        turns=TURNS,
        aliases=("gigachat",),
        writes=json_object(f"<|message_sep|>\n\n{ROLE}\n", "", single=True),
        known_by=(Signature(("<|role_sep|>",)),),
        ids=("gigachat3",),
    ),
    Dialect(
        name="gigachat3_1",
        calls=(CALLS,),
        wrappers=WRAPPERS,
        ends=ENDS,
        turns=TURNS,
        writes=json_object("<|function_call|>", "", single=True),
        known_by=(Signature(("<|role_sep|>", "<|function_call|>")), Signature(("<|function_call|>",))),
        ids=("gigachat3.1",),
    ),
)
