"""GLM: the name, then `<arg_key>` and `<arg_value>` pairs; also Ling 3, Laguna and Hy3.

Promise: one syntax reads all of them; they differ in the line breaks they write.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnwire.parsers.codecs.tagged import Headers, Tagged, Values
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

GLM = Tagged(
    call_open=("<tool_call>",),
    call_close=("</tool_call>",),
    param_open=("<arg_key>",),
    param_close=("</arg_value>",),
    headers=Headers(end="", key_end=("</arg_key>",)),
    values=Values(open=("<arg_value>",)),
)
# Hy3 wraps the calls once more; all its markers may carry one suffix.
SUFFIXES = ("", ":opensource")
HY3 = replace(
    GLM,
    sections=tuple((f"<tool_calls{end}>", f"</tool_calls{end}>") for end in SUFFIXES),
    call_open=tuple(f"<tool_call{end}>" for end in SUFFIXES),
    call_close=tuple(f"</tool_call{end}>" for end in SUFFIXES),
    param_open=tuple(f"<arg_key{end}>" for end in SUFFIXES),
    param_close=tuple(f"</arg_value{end}>" for end in SUFFIXES),
    headers=Headers(
        end="",
        name_ends=("\n", "\\n", *(f"<tool_sep{end}>" for end in SUFFIXES)),
        key_end=tuple(f"</arg_key{end}>" for end in SUFFIXES),
    ),
    values=Values(open=tuple(f"<arg_value{end}>" for end in SUFFIXES)),
)
GLM45_FORM = CallForm(
    head="<tool_call>{name}\n",
    arguments=ArgumentForm("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n"),
    tail="</tool_call>",
    between="\n",
)
GLM47_FORM = CallForm(
    head="<tool_call>{name}",
    arguments=ArgumentForm("<arg_key>{key}</arg_key><arg_value>", "</arg_value>"),
    tail="</tool_call>",
)
PAIRS = ("<arg_key>", "<arg_value>")
ENDS = ("<|user|>", "<|observation|>", "<|endoftext|>")

DIALECTS = (
    Dialect(
        name="glm45",
        reasoning=Reasoning(),
        calls=(GLM,),
        ends=ENDS,
        turns=("<|observation|>",),
        aliases=("glm", "glm4_5", "glm4_6", "glm46", "glm45_moe"),
        writes=GLM45_FORM,
        known_by=(Signature(PAIRS, weight="shared"),),
        ids=("glm-4.5", "glm-4.6"),
    ),
    Dialect(
        name="glm47",
        reasoning=Reasoning(),
        calls=(GLM,),
        ends=ENDS,
        turns=("<|observation|>",),
        aliases=("glm4_7", "glm5", "glm5_1", "glm5_2", "glm47_moe"),
        writes=GLM47_FORM,
        known_by=(Signature((*PAIRS, "clear_thinking")),),
        ids=("glm-4.7", "glm-5"),
    ),
    Dialect(
        name="ling3",
        reasoning=Reasoning(),
        calls=(GLM,),
        aliases=("ring3", "ling", "ring"),
        writes=GLM47_FORM,
        ids=("ling-3", "ring-3", "ling-*3.0", "ring-*3.0"),
    ),
    Dialect(
        name="poolside_v1",
        reasoning=Reasoning(),
        calls=(GLM,),
        ends=("</assistant>",),
        turns=("<assistant>", "</assistant>", "<user>", "</user>"),
        aliases=("laguna", "poolside"),
        writes=GLM45_FORM,
        known_by=(Signature((*PAIRS, "<assistant>")),),
        ids=("laguna",),
    ),
    Dialect(
        name="hy_v3",
        reasoning=Reasoning(
            open=tuple(f"<think{end}>" for end in SUFFIXES),
            close=tuple(f"</think{end}>" for end in SUFFIXES),
        ),
        calls=(HY3,),
        ends=tuple(f"<｜hy_eos{end}｜>" for end in SUFFIXES),
        turns=tuple(f"<｜hy_{role}{end}｜>" for role in ("User", "Assistant") for end in SUFFIXES),
        aliases=("hunyuan", "hy3", "hunyuan_v3"),
        writes=CallForm(
            section=("<tool_calls>\n", "</tool_calls>"),
            head="<tool_call>{name}<tool_sep>\n",
            arguments=ArgumentForm("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n"),
            tail="</tool_call>\n",
        ),
        known_by=(Signature((*PAIRS, "<tool_sep")), Signature(("<tool_sep",))),
        ids=("hy3", "hunyuan-3", "hunyuan-v3"),
    ),
)
