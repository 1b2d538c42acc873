"""Which turns need a seal of their end? A table: chat template x kind of turn, restored from its words or not.

    python benchmarks/seal_table.py TEMPLATES_FOLDER [--tokenizer FILE]

For every `*.jinja` file of the folder each kind of turn is written in the template's own form and tokenized as the
tokenizer would (what a model usually emits), and then once more with tokens cut elsewhere and other blanks (what it
may emit). A turn that its client's words restore needs no carrier at its end: `-`. One that they do not restore needs
it: `carrier`, or where the Messages API has no place for one, `store`. `?`: the template cannot show such a turn.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from replay_table import TOOLS, load

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Block, Conversation, Message, ReasoningBlock, TextBlock, Thinking, ToolCallBlock

THOUGHT = ReasoningBlock(text="First the file.")
TEXT = TextBlock(text="I will write it and look around.")
PLAIN = ToolCallBlock(id="call_1", name="Bash", arguments='{"command":"ls -la"}')
REWRITTEN = ToolCallBlock(id="call_1", name="Write", arguments='{"content":"x = 1  ","file_path":"a.py"}')
KINDS: dict[str, tuple[Block, ...]] = {
    "thought, text": (THOUGHT, TEXT),
    "thought, call": (THOUGHT, PLAIN),
    "thought, text, call": (THOUGHT, TEXT, PLAIN),
    "thought, call that clients rewrite": (THOUGHT, REWRITTEN),
    "text": (TEXT,),
    "call": (PLAIN,),
}


def cell(builder: PromptBuilder, blocks: Sequence[Block], *, tidy: bool) -> str:
    """What the end of such a turn needs."""
    thinks = isinstance(blocks[0], ReasoningBlock)
    wish = Thinking(mode="on" if thinks else "off")
    asked = Message(role="user", blocks=(TextBlock(text="Go."),))
    prompt = builder.build(Conversation(model="m", messages=(asked,), tools=TOOLS, thinking=wish))
    traits = builder.traits
    message = Message(role="assistant", blocks=tuple(blocks))
    switch = traits.thinking_on if thinks else traits.thinking_off or {}
    raw = TemplateSplicer(builder.template, traits, [message], TOOLS, []).rewritten(message, switch)
    close = traits.thought_close
    if raw is None or prompt.foresight is None or (thinks and (not close or close not in raw)):
        return "?"
    encode = builder.tokenizer.encode
    ids = encode(raw)
    if not tidy:
        start = raw.find(close) + len(close) if thinks and close else 0
        raw = raw[:start] + " " + raw[start:]
        middle = (start + len(raw)) // 2
        ids = [*encode(raw[:middle]), *encode(raw[middle:])]
    kept = len(encode(raw[: raw.find(close) + len(close)])) if thinks and close else 0
    if prompt.foresight.restores(ids, kept, blocks[1:] if thinks else blocks):
        return "-"
    return "carrier" if any(isinstance(block, ToolCallBlock) for block in blocks) else "store"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", default=None)
    options = parser.parse_args(argv)
    tokenizer = load_tokenizer(options.tokenizer)
    print("| template | " + " | ".join(KINDS) + " |")
    print("|---|" + "---|" * len(KINDS))
    counts: dict[tuple[str, bool], Counter[str]] = {(kind, tidy): Counter() for kind in KINDS for tidy in (True, False)}
    for path in sorted(options.folder.glob("*.jinja")):
        builder = PromptBuilder(load(path), tokenizer)
        row: list[str] = []
        for kind, blocks in KINDS.items():
            pair = [cell(builder, blocks, tidy=tidy) for tidy in (True, False)]
            counts[kind, True][pair[0]] += 1
            counts[kind, False][pair[1]] += 1
            row.append(" / ".join(pair))
        print(f"| {path.stem} | " + " | ".join(row) + " |")
    for (kind, tidy), found in counts.items():
        said = ", ".join(f"{word}: {count}" for word, count in sorted(found.items()))
        print(f"{kind} ({'tidy' if tidy else 'untidy'}): {said}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
