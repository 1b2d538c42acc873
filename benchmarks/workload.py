"""The turns that benchmarks play: deterministic text of our own, in the dialect a Qwen3-Coder style model writes."""

from __future__ import annotations

import json

PROSE = (
    "A gateway between a harness and a model should feel like a wire. It carries what the model says as it is said, "
    "keeps the order of thoughts and calls, and forgets nothing that the next turn will need. "
)
CODE = '''def settle(self, ledger, *, strict=True):
    """Apply every pending entry once, oldest first."""
    applied = 0
    for entry in sorted(ledger.pending, key=lambda e: e.sequence):
        if strict and entry.amount < 0:
            raise ValueError(f"negative amount in {entry.name!r}")
        ledger.post(entry.account, entry.amount, memo="settled\\n")
        applied += 1
    return applied

'''


def repeat(text: str, size: int) -> str:
    """`text` over and over, cut to `size` characters."""
    return (text * (size // len(text) + 1))[:size]


def mixed_turn(size: int = 8000) -> str:
    """30 % reasoning, 20 % prose, 50 % one file-writing tool call."""
    return (
        repeat(PROSE, size * 3 // 10)
        + "\n</think>\n\n"
        + repeat(PROSE, size * 2 // 10)
        + "\n<tool_call>\n<function=Write>\n<parameter=file_path>\n/repo/ledger.py\n</parameter>\n<parameter=content>\n"
        + repeat(CODE, size // 2)
        + "\n</parameter>\n</function>\n</tool_call>"
    )


def messages_request(model: str) -> bytes:
    """A streaming Anthropic request that offers the tool the turn calls."""
    return json.dumps(
        {
            "model": model,
            "max_tokens": 32000,
            "stream": True,
            "thinking": {"type": "enabled", "budget_tokens": 4096},
            "messages": [{"role": "user", "content": "Write the ledger module."}],
            "tools": [
                {
                    "name": "Write",
                    "description": "Write a file.",
                    "input_schema": {
                        "type": "object",
                        "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
                        "required": ["file_path", "content"],
                    },
                }
            ],
        }
    ).encode()
