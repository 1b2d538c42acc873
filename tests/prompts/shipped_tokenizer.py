"""The tokenizer that ships, for the tests of tokenizers: loaded, as a file, and some texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnwire.prompts.tokenizers import hf as tokenizers_hf
from turnwire.prompts.tokenizers.load import load_tokenizer

OWN = load_tokenizer()
SHIPPED = Path(tokenizers_hf.__file__).parents[1] / "data" / "turnwire-tokenizer.json"
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)
SAMPLES = (
    "Hello, world! It's 12345 o'clock.\n\n\tYes  \n",
    "def f(x):\n    return {'a': x}  # é 你好 😀",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n</think>",
    "",
    "   ",
)
PROSE = """The gateway keeps the prompt of every session and compares it with the next one. When a client sends the
same conversation again, with one more message at its end, the engine has already read everything before that message,
so only the new part costs time. If a date in the first line changes, nothing of that work can be used."""


def shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return found
