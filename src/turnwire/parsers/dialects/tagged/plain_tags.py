"""Step-3, MiniCPM5 and dots: tags around each argument.

Promise: each reads the layout of its own template and the slips its models are known for.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.tagged import Headers, PlainTags, Repairs, Tagged
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

NAMED = Headers(name_attribute="name", key_attribute="name")
STEP3 = Tagged(
    sections=(("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),),
    call_open=("<steptml:invoke",),
    call_close=("</steptml:invoke>",),
    param_open=("<steptml:parameter",),
    param_close=("</steptml:parameter>",),
    headers=NAMED,
    repairs=Repairs(
        fillers=("<｜tool_call_begin｜>", "<｜tool_call_end｜>", "function<｜tool_sep｜>", "<｜tool_sep｜>")
    ),
)
# A tokenizer's mark for a space leaks into the tags of some deployments; others lose the space.
MINICPM5 = PlainTags(
    call_open=("<function", "<functionĠ"),
    call_close=("</function>",),
    param_open=("<param", "<paramĠ"),
    param_close=("</param>",),
    headers=NAMED,
    repairs=Repairs(wrong_close=("</parameter>",), unwraps=("properties", "arguments", "parameters")),
)
DOTS_OPEN, DOTS_CLOSE = "<dots_function_call>", "</dots_function_call>"
DOTS = Tagged(
    sections=((DOTS_OPEN, DOTS_CLOSE),),
    call_open=("<invoke",),
    call_close=("</invoke>",),
    param_open=("<parameter",),
    param_close=("</parameter>",),
    headers=NAMED,
    repairs=Repairs(json_body=True, lists=Envelope(wrappers=((DOTS_OPEN, DOTS_CLOSE),))),
)

DIALECTS = (
    Dialect(
        name="step3",
        reasoning=Reasoning(by_default=True),
        calls=(STEP3,),
        ends=("<|EOT|>", "<｜end▁of▁sentence｜>"),
        turns=("<|BOT|>", "<|EOT|>"),
        writes=CallForm(
            section=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
            head='<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
            arguments=ArgumentForm('<steptml:parameter name="{key}">', "</steptml:parameter>"),
            tail="</steptml:invoke><｜tool_call_end｜>",
        ),
        known_by=(Signature(("<steptml:invoke",)),),
        ids=("step-3",),
    ),
    Dialect(
        name="minicpm5",
        reasoning=Reasoning(),
        calls=(MINICPM5,),
        writes=CallForm(
            head='<function name="{name}">',
            arguments=ArgumentForm('<param name="{key}">', "</param>"),
            tail="</function>",
        ),
        known_by=(Signature(("<function name=", "<param name=")),),
        ids=("minicpm-5",),
    ),
    Dialect(
        name="dots",
        reasoning=Reasoning(),
        calls=(DOTS,),
        ends=("<|endofassistant|>", "<|endoftext|>"),
        turns=("<|userprompt|>", "<|response|>", "<|endofassistant|>"),
        writes=CallForm(
            section=(f"{DOTS_OPEN}\n", DOTS_CLOSE),
            head='<invoke name="{name}">\n',
            arguments=ArgumentForm('<parameter name="{key}">', "</parameter>\n"),
            tail="</invoke>\n",
        ),
        known_by=(Signature((DOTS_OPEN,)),),
        ids=("dots",),
    ),
)
