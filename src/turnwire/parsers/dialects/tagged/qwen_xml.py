"""Qwen3-Coder's tagged calls, and the families that took them over (Nemotron 3, Step-3.5, MiMo, Seed-OSS).

Promise: one syntax reads all of them; they differ in the line breaks around values.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnwire.parsers.codecs.tagged import Repairs, Tagged, Values
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS", "QWEN_XML"]

QWEN_XML = Tagged(
    sections=(("<tool_call>", "</tool_call>"),),
    call_open=("<function=",),
    call_close=("</function>",),
    param_open=("<parameter=",),
    param_close=("</parameter>",),
    values=Values(newlines="both"),
    repairs=Repairs(
        loose_open=("<function ", "<function"),
        wrong_close=("</param>", "</arg_value>", "</invoke>"),
    ),
)
PAIRED = Values(newlines="paired")

MARKS = ("<function=", "<parameter=")


def form(before: str = "<tool_call>", after: str = "</tool_call>", line: str = "\n") -> CallForm:
    """How such calls are written; `line` is what is on both sides of a value."""
    return CallForm(
        head=before + "\n<function={name}>\n",
        arguments=ArgumentForm(f"<parameter={{key}}>{line}", f"{line}</parameter>\n"),
        tail="</function>\n" + after,
        between="\n",
    )


DIALECTS = (
    Dialect(
        name="qwen3_coder",
        reasoning=Reasoning(),
        calls=(QWEN_XML,),
        aliases=("qwen3_xml", "qwen_xml", "qwen_coder", "qwen3_5", "qwen3_6", "qwen3_8"),
        writes=form(),
        known_by=(Signature(MARKS, weight="shared"),),
        ids=("qwen-3-coder", "qwen-3.[5-9]", "intellect-3"),
    ),
    Dialect(
        name="nemotron_v3",
        reasoning=Reasoning(by_default=True),
        calls=(QWEN_XML,),
        aliases=("nemotron_3", "nemotron3", "nemotron_nano", "nano_v3"),
        writes=form(),
        known_by=(Signature((*MARKS, "truncate_history_thinking")),),
        ids=("nemotron-3",),
    ),
    Dialect(
        name="step3p5",
        reasoning=Reasoning(by_default=True),
        calls=(QWEN_XML,),
        aliases=("step3_5", "step3_7", "step3p7"),
        writes=form(),
        ids=("step-3.[5-9]",),
    ),
    Dialect(
        name="mimo",
        reasoning=Reasoning(),
        calls=(replace(QWEN_XML, values=PAIRED),),
        aliases=("mimo_v2",),
        writes=form(line=""),
        ids=("mimo-v2", "mimo-v3"),
    ),
    Dialect(
        name="seed_oss",
        reasoning=Reasoning(("<seed:think>",), ("</seed:think>",)),
        calls=(replace(QWEN_XML, sections=(("<seed:tool_call>", "</seed:tool_call>"),), values=PAIRED),),
        ends=("<seed:eos>",),
        aliases=("seed",),
        turns=("<seed:bos>", "<seed:eos>"),
        reasoning_aliases=("seed_think",),
        writes=form("<seed:tool_call>", "</seed:tool_call>", ""),
        known_by=(Signature(("<seed:tool_call>",)),),
        ids=("seed-oss",),
    ),
)
