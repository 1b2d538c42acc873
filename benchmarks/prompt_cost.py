"""What a prompt costs before the engine sees it: CPU time of template, recall, tokenizer and continuity on a long agent
conversation whose turns are recalled from seals, cold and on the next turn.

    python benchmarks/prompt_cost.py [--tokens 52000] [--tokenizer FILE] [--runs 5]

Times are CPU milliseconds of the whole process, so that a helper thread is not a discount.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

from turnwire.continuity import SessionTracker
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.recall.recall import RecallCache, TurnRecall
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.recall.witness import Witness
from turnwire.prompts.templates.template import default_template
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.prompts.tokenizers.part_cache import PrefixTokenizer
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Conversation,
    Message,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolCallClosed,
    ToolResultBlock,
)

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
SEALER = Sealer([bytes(32)])


def varied(text: str, size: int, chance: random.Random) -> str:
    """Text of about `size` characters in which no two stretches are alike."""
    words = text.split(" ")
    made: list[str] = []
    length = 0
    while length < size:
        word = words[chance.randrange(len(words))]
        made.append(word if chance.random() < 0.9 else f"{word}{chance.randrange(1000)}")
        length += len(made[-1]) + 1
    return " ".join(made)


def turn(number: int, tokenizer: Tokenizer, chance: random.Random) -> tuple[Message, Message]:
    """One step of a tool loop: a sealed assistant turn (thought, text, call, thought, call) and the results."""
    witness = Witness()
    sealing = SEALER.turn(f"turn{number}", model="m", tenant="t", shape=witness)
    thoughts = [varied(PROSE, 600, chance) + "\n", varied(PROSE, 200, chance) + "\n"]
    said = varied(PROSE, 150, chance)
    paths = [f"src/module_{number}/{name}.py" for name in "ab"]
    calls = [
        ("Read", json.dumps({"path": paths[0], "limit": 200})),
        ("Write", json.dumps({"path": paths[1], "content": varied(CODE, 600, chance)})),
    ]
    raw: list[tuple[str, list[object]]] = []
    raw.append((thoughts[0] + "</think>\n\n", [("reasoning", thoughts[0])]))
    raw.append((said, [("text", said)]))
    raw.append((f'\n<tool_call>\n{{"name": "Read", "arguments": {calls[0][1]}}}\n</tool_call>', [("call", *calls[0])]))
    raw.append((f"<think>\n{thoughts[1]}</think>", [("reasoning", thoughts[1])]))
    raw.append(
        (
            f'\n<tool_call>\n{{"name": "Write", "arguments": {calls[1][1]}}}\n</tool_call><|im_end|>',
            [("call", *calls[1])],
        )
    )
    blocks: list[ReasoningBlock | TextBlock | ToolCallBlock] = []
    ids: list[str] = []
    for index, (text, (block,)) in enumerate(raw):
        sealing.add(tokenizer.encode(text))
        kind, *rest = block  # type: ignore[misc]
        if kind == "call":
            ids.append(f"call{number}x{index}")
            witness.feed([ToolCallClosed(index, rest[0], rest[1], ids[-1], raw=text)])
            blocks.append(
                ToolCallBlock(
                    id=ids[-1], name=rest[0], arguments=json.dumps(json.loads(rest[1]), separators=(",", ":"))
                )
            )
            continue
        witness.feed([BlockOpened(index, kind), BlockDelta(index, rest[0], rest[0]), BlockClosed(index, kind)])
        if kind == "reasoning":
            blocks.append(ReasoningBlock(text=rest[0], seal=sealing.seal()))
        else:
            blocks.append(TextBlock(text=rest[0]))
    trailing = sealing.finish()
    blocks.append(ReasoningBlock(text="", seal=trailing, redacted=True))
    results = tuple(
        ToolResultBlock(call_id=call_id, content=(TextBlock(text=varied(CODE, size, chance)),))
        for call_id, size in zip(ids, (2400, 100), strict=True)
    )
    return Message(role="assistant", blocks=tuple(blocks)), Message(role="user", blocks=results)


def conversation(tokens: int, tokenizer: Tokenizer) -> Conversation:
    """A conversation of about that many tokens, ending with tool results."""
    chance = random.Random(7)
    tools = tuple(
        Tool(
            name=name,
            description=varied(PROSE, 900, chance),
            schema={
                "type": "object",
                "properties": {"path": {"type": "string", "description": varied(PROSE, 80, chance)}},
            },
        )
        for name in ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "Task", "Fetch", "Search", "Plan", "Ask", "Note")
    )
    system = Message(role="system", blocks=(TextBlock(text=varied(PROSE, 20_000, chance)),))
    messages = [system, Message(role="user", blocks=(TextBlock(text="Fix the failing test."),))]
    size, number = len(tokenizer.encode(system.text)), 0
    while size < tokens * 0.93:
        step = turn(number, tokenizer, chance)
        messages.extend(step)
        size += sum(
            len(tokenizer.encode(getattr(block, "text", "") or getattr(block, "arguments", "")))
            for block in step[0].blocks
        )
        size += sum(len(tokenizer.encode(part.text)) for block in step[1].blocks for part in block.content)  # type: ignore[union-attr]
        number += 1
    return Conversation(model="m", messages=tuple(messages), tools=tools)


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def longer(base: Conversation, extra: Sequence[tuple[Message, Message]], steps: int) -> Conversation:
    added = [message for step in extra[:steps] for message in step]
    return Conversation(model=base.model, messages=(*base.messages, *added), tools=base.tools)


def fresh(given: Conversation) -> Conversation:
    """The same conversation from new objects, as a decoder makes them for every request."""
    return msgspec.json.decode(msgspec.json.encode(given), type=Conversation)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tokens", type=int, default=52_000)
    options.add_argument(
        "--tokenizer", help="tokenizer.json, tekken.json, .tiktoken or .gguf; the shipped one if left out"
    )
    options.add_argument("--runs", type=int, default=5)
    given = options.parse_args()
    tokenizer = load_tokenizer(given.tokenizer)
    base = conversation(given.tokens, tokenizer)
    chance = random.Random(11)
    extra = [turn(1000 + number, tokenizer, chance) for number in range(given.runs)]
    template = default_template()
    cached = PrefixTokenizer(tokenizer)
    builder, cache = PromptBuilder(template, cached), RecallCache()
    tracker = SessionTracker()

    def recall() -> TurnRecall:
        return TurnRecall(tokenizer=tokenizer, tenant="t", model="m", session="s", sealer=SEALER, cache=cache)

    first = fresh(base)
    cold = cpu(lambda: builder.build(first, recall()))
    prompt = builder.build(first, recall())
    text = tokenizer.decode(prompt.ids)
    print(f"tokenizer {tokenizer.name} ({tokenizer.vocab_size} tokens), template of our own")
    print(f"conversation: {len(base.messages)} messages, {len(text)} characters, {len(prompt.ids)} prompt tokens")
    notes = sorted({note.code for note in prompt.notes})
    exact = sum(section.kind == "turn" for section in prompt.sections)
    print(f"turns replayed exactly: {exact}; notes: {', '.join(notes) or 'none'}\n")

    warm, compared, remembered = [], [], []
    tracker.remember("k", prompt, first)
    for steps in range(1, given.runs + 1):
        now = fresh(longer(base, extra, steps))
        asked = recall()
        warm.append(cpu(lambda now=now, asked=asked: builder.build(now, asked)))  # type: ignore[misc]
        prompt = builder.build(now, asked)
        compared.append(cpu(lambda prompt=prompt, now=now: tracker.compare("k", prompt, now)))  # type: ignore[misc]
        assert tracker.compare("k", prompt, now).state == "held"
        remembered.append(cpu(lambda prompt=prompt, now=now: tracker.remember("k", prompt, now)))  # type: ignore[misc]
    rows = (
        ("stability, template, recall, tokenizer", cold, statistics.median(warm)),
        ("continuity: compare", compared[0], statistics.median(compared)),
        ("continuity: remember", remembered[0], statistics.median(remembered)),
    )
    print(f"{'CPU ms':<52}{'first turn':>12}{'next turn':>12}")
    for name, one, other in rows:
        print(f"{name:<52}{one:>12.2f}{other:>12.2f}")


if __name__ == "__main__":
    main()
