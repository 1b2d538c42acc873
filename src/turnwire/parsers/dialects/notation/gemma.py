"""Gemma 4 and FunctionGemma: calls in a notation of their own, thoughts in a channel.

Promise: text between the marks comes back byte for byte.
"""

from __future__ import annotations

from turnwire.parsers.codecs.braced import Braced
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

DIALECTS = (
    Dialect(
        name="gemma4",
        reasoning=Reasoning(("<|channel>",), ("<channel|>",), labels=("thought\n", "thought"), mentions=False),
        calls=(Braced("<|tool_call>", "<tool_call|>", '<|"|>', wrong_close=("</tool_call>",)),),
        ends=("<turn|>", "<|tool_response>", "<end_of_turn>", "<eos>"),
        turns=("<|turn>", "<turn|>", "<tool_response|>"),
        aliases=("gemma_4",),
        writes=CallForm(
            head="<|tool_call>call:{name}{{",
            arguments=ArgumentForm("{key}:", "", ",", quotes=('<|"|>', '<|"|>')),
            tail="}}<tool_call|>",
        ),
        known_by=(Signature(("<|channel>",)), Signature(("<|tool_call>call:",))),
        ids=("gemma-4",),
    ),
    Dialect(
        name="functiongemma",
        calls=(Braced("<start_function_call>", "<end_function_call>", "<escape>", typed=True),),
        ends=("<start_function_response>", "<end_of_turn>", "<eos>"),
        aliases=("function_gemma",),
        writes=CallForm(
            head="<start_function_call>call:{name}{{",
            arguments=ArgumentForm("{key}:", "", ",", quotes=("<escape>", "<escape>")),
            tail="}}<end_function_call>",
        ),
        known_by=(Signature(("<start_function_call>",)),),
        ids=("functiongemma", "function-gemma"),
    ),
)
