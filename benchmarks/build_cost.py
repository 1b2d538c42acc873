"""What `PromptBuilder.build` costs when a conversation comes again with one exchange more: CPU milliseconds per turn at
20 messages of 8,000 characters and at 200 messages of 200,000, as plain chat and as a tool loop, with and without turns
that are recalled.

    python benchmarks/build_cost.py [--tokenizer FILE] [--template FILE] [--turns 30]

Every request is made of new objects, as a decoder makes them. `first` is the builder's first prompt, `growing` the
median of the following ones, `same` the last one asked for again.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

import msgspec

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import HistoryKey, Prompt, RecalledTurn, Tokenizer
from turnwire.prompts.templates.template import ChatTemplate, Renderer, default_template
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.prompts.tokenizers.part_cache import PrefixTokenizer
from turnwire.turns import (
    Conversation,
    Message,
    Note,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

PROSE = (
    "A gateway between a harness and a model should feel like a wire. It carries what the model says as it is said, "
    "keeps the order of thoughts and calls, and forgets nothing that the next turn will need. "
)
CODE = "    for entry in sorted(ledger.pending, key=lambda e: e.sequence):\n        ledger.post(entry, 1)\n"
SIZES = ((20, 8_000), (200, 200_000))
TOOLS = tuple(
    Tool(name=name, description="Does a thing with files.", schema={"type": "object", "properties": {"path": {}}})
    for name in ("Read", "Write", "Bash", "Grep", "Glob", "Edit", "Task", "Fetch")
)


class Remembered:
    """Recalls every turn, under one scope."""

    scope = "benchmark"

    def __init__(self, tokenizer: Tokenizer, tail: str) -> None:
        self._tokenizer = tokenizer
        self._tail = tail
        self._known: dict[Message, RecalledTurn] = {}

    def recall(self, message: Message, history: HistoryKey | None = None) -> tuple[RecalledTurn, tuple[Note, ...]]:
        found = self._known.get(message)
        if found is None:
            text = f"Hm.\n</think>\n\n{message.text}<|im_end|>"
            found = RecalledTurn(ids=self._tokenizer.encode(text), text=text, tail=self._tail)
            self._known[message] = found
        return found, ()


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


def fresh(given: Conversation) -> Conversation:
    """The same conversation from new objects, as a decoder makes them for every request."""
    return msgspec.json.decode(msgspec.json.encode(given), type=Conversation)


def said(role: str, text: str) -> Message:
    return msgspec.convert({"role": role, "blocks": [{"type": "text", "text": text}]}, Message)


def chat(messages: int, characters: int, turns: int) -> list[Conversation]:
    """Plain chat that grows by a question and an answer."""
    chance = random.Random(7)
    size = characters // messages
    history = [said("system", "You are an agent.")]
    history += [said(("user", "assistant")[n % 2], varied(PROSE, size, chance)) for n in range(messages)]
    made: list[Conversation] = []
    for number in range(turns):
        history.append(said("user", f"Go on {number}."))
        made.append(Conversation(model="m", messages=tuple(history)))
        history.append(said("assistant", "The gateway keeps one parser state for each."))
    return made


def loop(messages: int, characters: int, turns: int) -> list[Conversation]:
    """A tool loop that grows by a call and its result."""
    chance = random.Random(7)
    size = 2 * characters // messages
    history = [said("system", varied(PROSE, size, chance)), said("user", "Fix it.")]

    def step() -> None:
        name = f"call_{len(history)}"
        thought = ReasoningBlock(text=f"Think about {len(history)}.\n")
        call = ToolCallBlock(id=name, name="Read", arguments=f'{{"path": "/repo/file_{len(history)}.py"}}')
        result = ToolResultBlock(call_id=name, content=(TextBlock(text=varied(CODE, size, chance)),))
        history.append(Message(role="assistant", blocks=(thought, TextBlock(text="Reading."), call)))
        history.append(Message(role="user", blocks=(result,)))

    while len(history) < messages:
        step()
    made: list[Conversation] = []
    for _ in range(turns):
        made.append(Conversation(model="m", messages=tuple(history), tools=TOOLS))
        step()
    return made


def timed(builder: PromptBuilder, asked: Conversation, recall: Remembered | None) -> tuple[float, Prompt]:
    given = fresh(asked)
    started = time.process_time()
    prompt = builder.build(given, recall)
    return (time.process_time() - started) * 1000, prompt


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tokenizer")
    options.add_argument("--template")
    options.add_argument("--turns", type=int, default=30)
    given = options.parse_args()
    tokenizer = load_tokenizer(given.tokenizer)
    template: Renderer = default_template()
    if given.template:
        template = ChatTemplate(Path(given.template).read_text("utf-8"), {"eos_token": "<|im_end|>"})
    print(f"{'CPU ms':<28}{'tokens':>8}{'first':>10}{'growing':>10}{'least':>8}{'same':>8}")
    for name, make in (("chat", chat), ("loop", loop)):
        for messages, characters in SIZES:
            for recalled in (False, True):
                builder = PromptBuilder(template, PrefixTokenizer(tokenizer))
                recall = Remembered(tokenizer, builder.traits.tail_on) if recalled else None
                made = make(messages, characters, given.turns + 1)
                first, _ = timed(builder, made[0], recall)
                growing = [timed(builder, asked, recall) for asked in made[1:]]
                spent = [cost for cost, _ in growing]
                same = min(timed(builder, made[-1], recall)[0] for _ in range(5))
                row = f"{name}, {messages} messages{', recalled' if recalled else ''}"
                tokens = len(growing[-1][1].ids)
                print(
                    f"{row:<28}{tokens:>8}{first:>10.2f}{statistics.median(spent):>10.2f}{min(spent):>8.2f}{same:>8.2f}"
                )


if __name__ == "__main__":
    main()
