"""Hermes and Qwen: a JSON object in `<tool_call>` tags, and the families that changed only the tags."""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.dialect import Dialect, Reasoning, Sign

__all__ = ["DIALECTS", "FENCED", "HERMES"]

HERMES = Envelope(wrappers=(("<tool_call>", "</tool_call>"),))
FENCED = Envelope(
    wrappers=(
        ("```json", "```"),
        ("```tool_call", "```"),
        ("```", "```"),
        ("<tools>", "</tools>"),
    ),
    bare=(Sign("{", where="line", rescue=True),),
    needs_arguments=True,
    must_fit=True,
)

DIALECTS = (
    Dialect(
        name="hermes",
        reasoning=Reasoning(),
        calls=(HERMES,),
        aliases=("qwen25", "qwen", "qwen2_5", "granite4", "bielik", "reka_edge", "reka", "mimo_vl", "smollm3", "qwq"),
    ),
    Dialect(
        name="qwen3",
        reasoning=Reasoning(),
        calls=(HERMES,),
        aliases=("qwen3_json",),
    ),
    Dialect(name="qwen3_thinking", reasoning=Reasoning(by_default=True), calls=(HERMES,)),
    Dialect(name="qwen2_5_coder", reasoning=Reasoning(), calls=(HERMES, FENCED), aliases=("hermes_fenced",)),
    Dialect(name="trinity", reasoning=Reasoning(calls="pause"), calls=(HERMES,)),
    Dialect(
        name="longcat",
        reasoning=Reasoning(("<longcat_think>", "<think>"), ("</longcat_think>", "</think>")),
        calls=(Envelope(wrappers=(("<longcat_tool_call>", "</longcat_tool_call>"),)),),
        aliases=("longcat_flash",),
    ),
    Dialect(
        name="ernie45",
        reasoning=Reasoning(by_default=True),
        calls=(HERMES,),
        wrappers=("<response>", "</response>"),
        aliases=("ernie4_5", "ernie"),
    ),
    Dialect(
        name="internlm2",
        reasoning=Reasoning(),
        calls=(
            Envelope(
                wrappers=(
                    ("<|action_start|><|plugin|>", "<|action_end|>"),
                    ("<|action_start|> <|plugin|>", "<|action_end|>"),
                )
            ),
        ),
        aliases=("internlm", "interns1", "intern_s1", "internlm2_5"),
    ),
    Dialect(
        name="minimax_m1",
        reasoning=Reasoning(),
        calls=(Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),)),),
    ),
)
