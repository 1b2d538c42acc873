"""Calls as Python: Llama 4 and other pythonic models, OLMo 3, LFM2."""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.python_calls import PythonCalls
from turnwire.parsers.dialect import Dialect, Reasoning

__all__ = ["DIALECTS"]

LLAMA_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|end_of_text|>")
PYTHONIC = PythonCalls(
    wrappers=(("<|python_start|>", "<|python_end|>"), ("<|python_tag|>", "")),
    bare=True,
    method=".call",
)
LFM2_OPEN, LFM2_CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"

DIALECTS = (
    Dialect(
        name="pythonic",
        calls=(PYTHONIC,),
        ends=(*LLAMA_ENDS, "<end_of_turn>", "<|im_end|>", "<|endoftext|>"),
        aliases=("toolace", "llama3_2_pythonic", "gemma3"),
    ),
    Dialect(name="llama4_pythonic", calls=(PYTHONIC,), ends=LLAMA_ENDS, aliases=("llama4",)),
    Dialect(
        name="olmo3",
        reasoning=Reasoning(by_default=True),
        calls=(PythonCalls(wrappers=(("<function_calls>", "</function_calls>"),)),),
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
    ),
)
