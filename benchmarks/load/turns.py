"""The turns that benchmarks play, as a Qwen3 model writes them.

Promise: deterministic text of our own; the same call gives the same text.
"""

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
# One token of its own in Qwen3's vocabulary, and in no frame of any API: what is counted to see how late tokens are.
WORD = " elephant"
SHORT = "The ledger has been settled, every entry once."


def repeat(text: str, size: int) -> str:
    """`text` over and over, cut to `size` characters."""
    return (text * (size // len(text) + 1))[:size]


def mixed(size: int = 8000) -> str:
    """30 % reasoning, 20 % prose, 50 % one file-writing call in the Hermes form."""
    arguments = {"file_path": "/repo/ledger.py", "content": repeat(CODE, size // 2)}
    call = json.dumps({"name": "Write", "arguments": arguments})
    thought, said = repeat(PROSE, size * 3 // 10), repeat(PROSE, size * 2 // 10)
    return f"<think>\n{thought}\n</think>\n\n{said}\n<tool_call>\n{call}\n</tool_call>"


def counted(tokens: int) -> str:
    """Prose of one word, a token each."""
    return WORD * tokens


# A step of an agent: a thought, a sentence, a call.
CALLING = (
    "<think>\nThe entries must be read before they can be settled.\n</think>\n\nI will read the ledger.\n"
    '<tool_call>\n{"name": "Read", "arguments": {"file_path": "/repo/ledger.py"}}\n</tool_call>'
)
# The playbook: every script that a scripted engine can play, by name.
SCRIPTS = {"mixed": mixed(), "counted": counted(4000), "short": SHORT, "calling": CALLING}
