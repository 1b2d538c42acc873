"""Kimi K3 (XTML): thought, response and tools as elements between special tokens.

Promise: one router reads thought, answer and calls in the order they were written.
"""

from __future__ import annotations

from turnwire.parsers.codecs.xtml import Xtml
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

DIALECTS = (
    Dialect(
        name="kimi_k3",
        reasoning=Reasoning(("<|open|>think<|sep|>",), ("<|close|>think<|sep|>",), by_default=True),
        router=Xtml(),
        aliases=("kimik3",),
        writes=CallForm(
            section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
            head='<|open|>call tool="{name}" index="{index}"<|sep|><|open|>json type="object"<|sep|>',
            tail="<|close|>json<|sep|><|close|>call<|sep|>",
        ),
        known_by=(Signature(("<|open|>", "<|end_of_msg|>")),),
        ids=("kimi-k3",),
    ),
)
