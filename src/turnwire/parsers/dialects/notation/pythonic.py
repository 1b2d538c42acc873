"""Calls as Python: Llama 4 and other pythonic models, OLMo 3, LFM2.

Promise: only calls of literals are calls; nothing is evaluated.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.pythonic import PythonCalls
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

LLAMA_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|end_of_text|>")
PYTHONIC = PythonCalls(
    wrappers=(("<|python_start|>", "<|python_end|>"), ("<|python_tag|>", "")),
    bare=True,
    method=".call",
)
LFM2_OPEN, LFM2_CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"

ARGUMENTS = ArgumentForm("{key}=", "", ", ", "json")


def listed(before: str, after: str, between: str = ", ") -> CallForm:
    """Calls one after the other, as Python writes them."""
    return CallForm(section=(before, after), head="{name}(", arguments=ARGUMENTS, tail=")", between=between)


DIALECTS = (
    Dialect(
        name="pythonic",
        calls=(PYTHONIC,),
        ends=(*LLAMA_ENDS, "<end_of_turn>", "<|im_end|>", "<|endoftext|>"),
        aliases=("toolace", "llama3_2_pythonic", "gemma3"),
        writes=listed("[", "]"),
        known_by=(Signature(("[func_name1(",)),),
        ids=("toolace", "gemma-3"),
    ),
    Dialect(
        name="llama4_pythonic",
        calls=(PYTHONIC,),
        ends=LLAMA_ENDS,
        turns=("<|header_start|>", "<|header_end|>", "<|eot|>"),
        aliases=("llama4",),
        writes=listed("<|python_start|>[", "]<|python_end|>"),
        known_by=(
            Signature(("<|python_start|>",), weight="base"),
            Signature(("[func_name1(", "<|header_start|>")),
        ),
        ids=("llama-4",),
    ),
    Dialect(
        name="olmo3",
        reasoning=Reasoning(by_default=True),
        calls=(PythonCalls(wrappers=(("<function_calls>", "</function_calls>"),)),),
        writes=listed("<function_calls>", "</function_calls>", "\n"),
        known_by=(Signature(("<function_calls>",)),),
        ids=("olmo-3",),
    ),
    Dialect(
        name="lfm2",
        reasoning=Reasoning(),
        calls=(
            PythonCalls(
                wrappers=((LFM2_OPEN, LFM2_CLOSE),),
                json=Envelope(wrappers=((LFM2_OPEN, LFM2_CLOSE),)),
                echoes=True,
            ),
        ),
        aliases=("lfm2_5",),
        writes=listed(f"{LFM2_OPEN}[", f"]{LFM2_CLOSE}"),
        known_by=(Signature((LFM2_OPEN,)), Signature(("<|tool_list_start|>",))),
        ids=("lfm-2", "lfm2"),
    ),
)
