"""DeepSeek R1, V3 and V3.1: a name between special tokens, JSON arguments; V3.2 to V4.1: DSML tags.

Promise: each generation reads its own markers, with full-width and with ASCII bars.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnwire.parsers.codecs.named import Named
from turnwire.parsers.codecs.tagged import Headers, Repairs, Tagged, Values
from turnwire.parsers.dialect import Dialect, Encoding, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

ENDS = ("<｜end▁of▁sentence｜>", "<|end▁of▁sentence|>")
SECTIONS = (("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),)

SEP = "<｜tool▁sep｜>"
NAME = r"(?P<name>[^\s<>{}`｜]+)"

V3 = Named(
    header=rf"\s*(?P<type>[^\s<>{{}}｜]*)\s*{SEP}\s*{NAME}(?P<rest>\s*(?:```\w*)?\s*)",
    sections=SECTIONS,
    call_open=("<｜tool▁call▁begin｜>",),
    call_close=("<｜tool▁call▁end｜>",),
    separators=(SEP,),
    noise=True,
    fences=True,
)
V3_1 = replace(V3, header=rf"\s*(?:function\s*{SEP}\s*(?=[^\s<{{`]))?{NAME}\s*(?:{SEP})?(?P<rest>\s*(?:```\w*)?\s*)")


def dsml(block: str, space: str = "") -> Tagged:
    """The DSML table for a block name; the full-width bars also come as ASCII ones."""

    def spelled(text: str) -> tuple[str, ...]:
        return tuple(text.format(mark) for mark in ("｜DSML｜", "|DSML|"))

    return Tagged(
        sections=tuple(zip(spelled(f"<{{}}{space}{block}>"), spelled(f"</{{}}{space}{block}>"), strict=True)),
        call_open=spelled(f"<{{}}{space}invoke"),
        call_close=spelled(f"</{{}}{space}invoke>"),
        param_open=spelled(f"<{{}}{space}parameter"),
        param_close=spelled(f"</{{}}{space}parameter>"),
        headers=Headers(name_attribute="name", key_attribute="name"),
        values=Values(type_attribute="string"),
        repairs=Repairs(json_body=True, unwraps=("arguments", "input")),
    )


def dsml_form(block: str, space: str = "") -> CallForm:
    """How DSML calls are written."""
    mark = f"｜DSML｜{space}"
    return CallForm(
        section=(f"<{mark}{block}>\n", f"</{mark}{block}>"),
        head=f'<{mark}invoke name="{{name}}">\n',
        arguments=ArgumentForm(f'<{mark}parameter name="{{key}}" string="{{string}}">', f"</{mark}parameter>\n"),
        tail=f"</{mark}invoke>\n",
    )


TURNS = ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>")
V3_FORM = CallForm(
    section=SECTIONS[0],
    head="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
    tail="\n```<｜tool▁call▁end｜>",
    between="\n",
)

DIALECTS = (
    Dialect(
        name="deepseek_r1",
        reasoning=Reasoning(by_default=True),
        calls=(V3,),
        ends=ENDS,
        turns=TURNS,
        writes=V3_FORM,
        ids=("deepseek-r1",),
    ),
    Dialect(
        name="deepseek_v3",
        reasoning=Reasoning(),
        calls=(V3,),
        ends=ENDS,
        turns=TURNS,
        aliases=("deepseek", "deepseekv3"),
        writes=V3_FORM,
        known_by=(Signature((SEP, "```json"), weight="shared"),),
        ids=("deepseek-v3", "deepseek-v2.5", "deepseek-chat"),
    ),
    Dialect(
        name="deepseek_v3_1",
        reasoning=Reasoning(),
        calls=(V3_1,),
        ends=ENDS,
        turns=TURNS,
        aliases=("deepseek_v31", "deepseek31", "deepseek_v3_2_exp"),
        writes=CallForm(
            section=SECTIONS[0], head="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", tail="<｜tool▁call▁end｜>"
        ),
        known_by=(Signature((SEP,), ("```json",)),),
        ids=("deepseek-v3.1", "deepseek-v3.2-exp"),
    ),
    Dialect(
        name="deepseek_v3_2",
        reasoning=Reasoning(),
        calls=(dsml("function_calls"),),
        ends=ENDS,
        turns=TURNS,
        aliases=("deepseek_v32", "deepseek32"),
        writes=dsml_form("function_calls"),
        known_by=(Signature(("｜DSML｜", "function_calls>")),),
        ids=("deepseek-v3.2",),
        encoding=Encoding.DEEPSEEK_V3_2,
    ),
    Dialect(
        name="deepseek_v4",
        reasoning=Reasoning(),
        calls=(dsml("tool_calls"),),
        ends=ENDS,
        turns=TURNS,
        writes=dsml_form("tool_calls"),
        known_by=(Signature(("｜DSML｜", "tool_calls>"), ("function_calls>",)),),
        ids=("deepseek-v4",),
        encoding=Encoding.DEEPSEEK_V4,
    ),
    Dialect(
        name="deepseek_v4_1",
        reasoning=Reasoning(),
        calls=(dsml("calls", " "),),
        ends=ENDS,
        turns=TURNS,
        aliases=("deepseek_v41",),
        writes=dsml_form("calls", " "),
        known_by=(Signature(("｜DSML｜", "<｜DSML｜ calls")),),
        ids=("deepseek-v4.1",),
    ),
)
