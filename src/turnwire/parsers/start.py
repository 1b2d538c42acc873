"""Reads the start state of a turn off the tail of its rendered prompt.

Promise: only what the current assistant turn opened counts; history, examples and tool results change nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from turnwire.parsers.dialect import Dialect, Start

__all__ = ["TURN_MARKERS", "start_state"]

# What ends a message or opens the next one in templates of more than one family; a family's own are in its table.
TURN_MARKERS: Final = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|end_of_text|>",  # ChatML
    "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",  # Llama 3
    "[INST]", "[/INST]", "</s>",  # Llama 2, Mistral
    "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|start|>",
    "<start_of_turn>", "<end_of_turn>",
    "<tool_response>", "</tool_response>", "<function_results>",
)  # fmt: skip


def start_state(prompt_tail: str, dialect: Dialect) -> Start:
    """Where the output of a turn begins: inside reasoning if the last reasoning marker of the current assistant turn
    is an opener, else in content.

    Where message headers route the output, the start is what the prompt holds of the header.
    Only text after the last turn marker counts, so a `<think>` in the history or in a question changes nothing.
    Where no turn marker is known, an opener counts only if nothing follows it."""
    return _known(prompt_tail, dialect) if len(prompt_tail) <= _SHORT else _start_of(prompt_tail, dialect)


def _start_of(prompt_tail: str, dialect: Dialect) -> Start:
    if dialect.router is not None:
        return dialect.router.start(prompt_tail)
    reasoning = dialect.reasoning
    if reasoning is None:
        return Start()
    turns = TURN_MARKERS + dialect.turns
    begin = max((prompt_tail.rfind(mark) + len(mark) for mark in turns if mark in prompt_tail), default=0)
    opened = max((prompt_tail.rfind(mark, begin) for mark in reasoning.open if mark), default=-1)
    closed = max((prompt_tail.rfind(mark, begin) for mark in reasoning.close if mark), default=-1)
    if opened <= closed:
        return Start()
    opener = max((mark for mark in reasoning.open if prompt_tail.startswith(mark, opened)), key=len)
    rest = prompt_tail[opened + len(opener) :].strip()
    return Start("reasoning") if begin or not rest or rest in {label.strip() for label in reasoning.labels} else Start()


# Most prompts of a model end alike. A tail that is long has words of its client's.
_SHORT = 256
_known = lru_cache(maxsize=256)(_start_of)
