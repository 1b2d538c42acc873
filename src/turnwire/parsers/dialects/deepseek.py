"""DeepSeek R1, V3 and V3.1: a name between special tokens, JSON arguments; V3.2 to V4.1: DSML tags."""

from __future__ import annotations

from dataclasses import replace

from turnwire.parsers.codecs.named import Named
from turnwire.parsers.codecs.tagged import Headers, Repairs, Tagged, Values
from turnwire.parsers.dialect import Dialect, Reasoning

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


DIALECTS = (
    Dialect(
        name="deepseek_r1",
        reasoning=Reasoning(by_default=True),
        calls=(V3,),
        ends=ENDS,
    ),
    Dialect(
        name="deepseek_v3",
        reasoning=Reasoning(),
        calls=(V3,),
        ends=ENDS,
        aliases=("deepseek", "deepseekv3"),
    ),
    Dialect(
        name="deepseek_v3_1",
        reasoning=Reasoning(),
        calls=(V3_1,),
        ends=ENDS,
        aliases=("deepseek_v31", "deepseek31", "deepseek_v3_2_exp"),
    ),
    Dialect(
        name="deepseek_v3_2",
        reasoning=Reasoning(),
        calls=(dsml("function_calls"),),
        ends=ENDS,
        aliases=("deepseek_v32", "deepseek32"),
    ),
    Dialect(
        name="deepseek_v4",
        reasoning=Reasoning(),
        calls=(dsml("tool_calls"),),
        ends=ENDS,
    ),
    Dialect(
        name="deepseek_v4_1",
        reasoning=Reasoning(),
        calls=(dsml("calls", " "),),
        ends=ENDS,
        aliases=("deepseek_v41",),
    ),
)
