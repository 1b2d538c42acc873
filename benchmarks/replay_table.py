"""Does turn N come back unchanged at the head of turn N+1? A table: chat template x client, held or why not.

    python benchmarks/replay_table.py TEMPLATES_FOLDER [--tokenizer FILE] [--details]

For every `*.jinja` file of the folder a three-step tool loop is played: interleaved reasoning, two calls per step,
awkward arguments, a second user turn. Each client returns the history with the rewritings it really does. A cell holds
when every prompt starts with the prompt and the output before it, token for token. "Model's rule": held inside each
tool loop, and at the next user message the template drops earlier thoughts, as its model was trained (the client asked
for nothing else).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import HistoryKey, Prompt, RecalledTurn, Tokenizer
from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.templates.template import ChatTemplate, Renderer, TemplateFailure
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import (
    Block,
    Conversation,
    Message,
    Note,
    ReasoningBlock,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["CLIENTS", "Outcome", "Said", "play"]

TOOLS = (
    Tool(
        name="Write",
        description="Writes a file.",
        schema={
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "where"},
                "content": {"type": "string", "description": "what"},
                "mode": {"type": "integer", "description": "bits"},
            },
            "required": ["file_path", "content"],
        },
    ),
    Tool(
        name="Bash",
        description="Runs a command.",
        schema={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "the command"},
                "timeout": {"type": "integer", "description": "milliseconds"},
                "env": {"type": "object", "description": "variables"},
            },
            "required": ["command"],
        },
    ),
)


class Said:
    """One turn as the model wrote it: the parts that clients get, the raw text, the tokens."""

    def __init__(self, thought: str, text: str, calls: Sequence[tuple[str, str, str]]) -> None:
        self.thought = thought
        self.text = text
        self.calls = calls
        self.raw = ""
        self.ids: tuple[int, ...] = ()

    def blocks(self) -> tuple[Block, ...]:
        blocks: list[Block] = []
        if self.thought:
            blocks.append(ReasoningBlock(text=self.thought))
        if self.text:
            blocks.append(TextBlock(text=self.text))
        blocks.extend(ToolCallBlock(id=call_id, name=name, arguments=args) for call_id, name, args in self.calls)
        return tuple(blocks)


def script() -> list[Said]:
    """Three tool steps, an answer, and after a second user message one more step and answer."""
    return [
        Said(
            "First the file.\nKey order matters: content before path.",
            "I will write it and look around.",
            [
                ("call_01", "Write", r'{"content": "line one  \nÜber \u00e9 \"q\" \\ </x>\n", "file_path": "a b.txt"}'),
                ("call_02", "Bash", '{"timeout":"5000","command":"ls -la   ","env":{"Z":"1","A":[1,2.0,null]}}'),
            ],
        ),
        Said(
            "The listing helps. 日本語 too.",
            "",
            [
                ("call_03", "Bash", '{"command": "grep -n \\"x\\" *.py | head"}'),
                ("call_04", "Write", '{"mode": 420, "file_path": "ü.md", "content": ""}'),
            ],
        ),
        Said(
            "Nearly done.",
            "One more look.",
            [
                ("call_05", "Bash", '{ "command" : "true" }'),
                ("call_06", "Bash", '{"command":"printf \\"%s\\\\n\\" done"}'),
            ],
        ),
        Said("All is well.", "Done: two files written.", []),
        Said("Again.", "", [("call_07", "Bash", '{"command":"date"}'), ("call_08", "Bash", '{"command":"id"}')]),
        Said("", "Finished.", []),
    ]


SECOND_PROMPT_AFTER = 3


def speak(said: Said, builder: PromptBuilder, thinking: bool) -> None:
    """Give a turn its raw text: the template's own form, made a little untidy as models do, and uneven tokens."""
    args = builder.traits.thinking_on if thinking else {}
    message = Message(role="assistant", blocks=said.blocks())
    raw = TemplateSplicer(builder.template, builder.traits, [message], TOOLS, []).rewritten(message, args)
    if raw is None:
        calls = "".join(f'\n<tool_call>\n{{"name": "{n}", "arguments": {a}}}\n</tool_call>' for _, n, a in said.calls)
        raw = f"{said.thought}\n</think>\n\n{said.text}{calls}"
    raw = raw.replace('": "', '" :"', 1).replace(", ", " ,", 2)
    if not said.calls:
        raw = raw.rstrip("\n")
    said.raw = raw
    encode = builder.tokenizer.encode
    middle = len(raw) // 2
    said.ids = tuple(encode(raw[:middle]) + encode(raw[middle:]))


class Memory:
    """Recall for the table: exact turns by a call's id, stripped to letters and digits, or by the turn's words."""

    def __init__(self) -> None:
        self._turns: dict[str, RecalledTurn] = {}

    def keep(self, said: Said) -> None:
        turn = RecalledTurn(ids=said.ids, text=said.raw)
        for key in _keys(said.blocks()):
            self._turns[key] = turn

    def recall(
        self, message: Message, history: HistoryKey | None = None
    ) -> tuple[RecalledTurn | None, tuple[Note, ...]]:
        for key in _keys(message.blocks):
            if key in self._turns:
                return self._turns[key], ()
        return None, (Note("replay.unknown", "nothing is known of this turn"),)


def _keys(blocks: Sequence[Block]) -> list[str]:
    calls = ["".join(filter(str.isalnum, block.id)) for block in blocks if isinstance(block, ToolCallBlock)]
    words = "".join(block.text for block in blocks if isinstance(block, TextBlock)).strip()
    return [*calls, f"text:{words}"] if words else calls


# ------------------------------------------------------------------------------------------------------- clients


def claude_code(turns: Sequence[Said], request: int) -> Conversation:
    """Thinking verbatim, inputs normalised, results as they finish, reminders beside them, a billing line that changes,
    a system message behind the prompt whose shape changes."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.325.{request:03x}; cch={request:05x};"
    system = (TextBlock(text=billing), TextBlock(text="You are a careful agent."), TextBlock(text="Be brief."))
    messages = [
        Message(role="system", blocks=system),
        Message(role="user", blocks=(TextBlock(text="<system-reminder>x</system-reminder>\n"), TextBlock(text="Go."))),
        Message(role="system", blocks=(TextBlock(text="# Environment\nToday is Tuesday."),)),
    ]
    for position, said in enumerate(turns):
        blocks = tuple(_normalised(block) if isinstance(block, ToolCallBlock) else block for block in said.blocks())
        messages.append(Message(role="assistant", blocks=blocks))
        results: list[Block] = list(reversed(_results(said)))
        if results and position % 2 == 0:
            results.append(TextBlock(text="<system-reminder>The list is empty.</system-reminder>"))
        messages.extend(_answer(results, position))
    thinking = Thinking(mode="adaptive", effort="high", history="keep")
    return Conversation(model="m", messages=tuple(messages), tools=TOOLS, thinking=thinking)


def codex(turns: Sequence[Said], request: int) -> Conversation:
    """Items one by one: reasoning, message, calls and outputs are messages of their own; developer text in front."""
    messages = [
        Message(role="system", blocks=(TextBlock(text="You are a coding agent."),)),
        Message(role="developer", blocks=(TextBlock(text="<permissions>all</permissions>"),)),
        Message(role="user", blocks=(TextBlock(text="<environment>linux</environment>"),)),
        Message(role="user", blocks=(TextBlock(text="Go."),)),
    ]
    for position, said in enumerate(turns):
        messages.extend(Message(role="assistant", blocks=(block,)) for block in said.blocks())
        messages.extend(Message(role="user", blocks=(result,)) for result in _results(said))
        messages.extend(_answer([], position))
    thinking = Thinking(mode="on", effort="medium", history="keep")
    return Conversation(model="m", messages=tuple(messages), tools=TOOLS, thinking=thinking)


def openclaw(turns: Sequence[Said], request: int) -> Conversation:
    """Chat Completions: ids lose their punctuation, reasoning comes back as one field."""
    messages = [
        Message(role="system", blocks=(TextBlock(text="You are a claw."),)),
        Message(role="user", blocks=(TextBlock(text="Go."),)),
    ]
    for position, said in enumerate(turns):
        blocks = tuple(
            ToolCallBlock(id=_stripped(block.id), name=block.name, arguments=block.arguments)
            if isinstance(block, ToolCallBlock)
            else block
            for block in said.blocks()
        )
        messages.append(Message(role="assistant", blocks=blocks))
        for result in _results(said):
            renamed = ToolResultBlock(call_id=_stripped(result.call_id), content=result.content)
            messages.append(Message(role="user", blocks=(renamed,)))
        messages.extend(_answer([], position))
    return Conversation(model="m", messages=tuple(messages), tools=TOOLS, thinking=Thinking(mode="on"))


def openai_sdk(turns: Sequence[Said], request: int) -> Conversation:
    """Chat Completions by hand: reasoning is dropped, arguments are parsed and written again."""
    messages = [
        Message(role="system", blocks=(TextBlock(text="You are helpful."),)),
        Message(role="user", blocks=(TextBlock(text="Go."),)),
    ]
    for position, said in enumerate(turns):
        blocks = tuple(
            ToolCallBlock(id=block.id, name=block.name, arguments=json.dumps(json.loads(block.arguments)))
            if isinstance(block, ToolCallBlock)
            else block
            for block in said.blocks()
            if not isinstance(block, ReasoningBlock)
        )
        messages.append(Message(role="assistant", blocks=blocks))
        messages.extend(Message(role="user", blocks=(result,)) for result in _results(said))
        messages.extend(_answer([], position))
    return Conversation(model="m", messages=tuple(messages), tools=TOOLS, thinking=Thinking(mode="on"))


CLIENTS: dict[str, Callable[[Sequence[Said], int], Conversation]] = {
    "claude-code": claude_code,
    "codex": codex,
    "openclaw": openclaw,
    "openai-sdk": openai_sdk,
}


def _results(said: Said) -> list[ToolResultBlock]:
    return [
        ToolResultBlock(call_id=call_id, content=(TextBlock(text=f'result of {call_id}: <ok> "q" é\n'),))
        for call_id, _, _ in said.calls
    ]


def _answer(results: list[Block], position: int) -> list[Message]:
    messages = [Message(role="user", blocks=tuple(results))] if results else []
    if position == SECOND_PROMPT_AFTER:
        messages.append(Message(role="user", blocks=(TextBlock(text="And now the date, please."),)))
    return messages


def _stripped(call_id: str) -> str:
    return "".join(filter(str.isalnum, call_id))


def _normalised(block: ToolCallBlock) -> ToolCallBlock:
    given: dict[str, Any] = json.loads(block.arguments)
    schema = next(tool.schema for tool in TOOLS if tool.name == block.name)
    ordered = {key: given[key] for key in schema["properties"] if key in given}
    if isinstance(ordered.get("timeout"), str):
        ordered["timeout"] = int(ordered["timeout"])
    if "content" in ordered:
        ordered["content"] = "\n".join(line.rstrip() for line in ordered["content"].split("\n"))
    return ToolCallBlock(id=block.id, name=block.name, arguments=json.dumps(ordered, ensure_ascii=False))


# --------------------------------------------------------------------------------------------------------- play


class Outcome:
    """What became of one cell: how often the prefix held, and each place where it did not, inside the tool loops and
    from one user turn to the next."""

    def __init__(self) -> None:
        self.loop = 0
        self.across = 0
        self.loop_breaks: list[str] = []
        self.across_breaks: list[str] = []
        self.prompts: list[Prompt] = []

    @property
    def verdict(self) -> str:
        if self.loop_breaks:
            return "broken"
        return "held, model's rule" if self.across_breaks else "held"


def play(template: Renderer, tokenizer: Tokenizer, client: str, *, builder: PromptBuilder | None = None) -> Outcome:
    """Play the script against a template as `client` would, and compare each prompt with the one before it."""
    builder = builder or PromptBuilder(template, tokenizer)
    outcome, memory = Outcome(), Memory()
    turns = script()
    before: list[int] | None = None
    for position, said in enumerate(turns):
        conversation = CLIENTS[client](turns[:position], position)
        try:
            prompt = builder.build(conversation, memory)
        except TemplateFailure as failure:
            outcome.loop_breaks.append(f"step {position}: the template refuses: {failure}"[:120])
            break
        outcome.prompts.append(prompt)
        ids = list(prompt.ids)
        across = position == SECOND_PROMPT_AFTER + 1
        if before is not None:
            if ids[: len(before)] == before:
                outcome.loop += not across
                outcome.across += across
            else:
                where = next((i for i, (a, b) in enumerate(zip(ids, before, strict=False)) if a != b), len(ids))
                codes = sorted({note.code for note in prompt.notes if note.code.startswith("replay.")})
                kind = "across user turns" if across else "in the loop"
                shown = tokenizer.decode(ids[max(0, where - 12) : where + 12])
                wanted = tokenizer.decode(before[max(0, where - 12) : where + 12])
                breaks = outcome.across_breaks if across else outcome.loop_breaks
                breaks.append(f"step {position} {kind} at {where}: {shown!r} for {wanted!r} {codes}")
        speak(said, builder, thinking=True)
        memory.keep(said)
        before = ids + list(said.ids)
    return outcome


def load(path: Path) -> ChatTemplate:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(path.read_text("utf-8"), special, clock=lambda: datetime(2026, 1, 2))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", default=None)
    parser.add_argument("--details", action="store_true")
    options = parser.parse_args(argv)
    tokenizer = load_tokenizer(options.tokenizer)
    names = list(CLIENTS)
    print("| template | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    details: list[str] = []
    verdicts: list[str] = []
    for path in sorted(options.folder.glob("*.jinja")):
        template = load(path)
        try:
            builder = PromptBuilder(template, tokenizer)
        except TemplateFailure as failure:
            print(f"| {path.stem} | " + " | ".join(f"refused: {failure}" for _ in names) + " |")
            continue
        cells: list[str] = []
        for client in names:
            outcome = play(template, tokenizer, client, builder=builder)
            cells.append(outcome.verdict)
            details += [f"{path.stem} / {client}: {text}" for text in outcome.loop_breaks + outcome.across_breaks]
        verdicts += cells
        marks = "" if builder.traits.tools and builder.traits.tool_role else " (no tools of its own)"
        print(f"| {path.stem}{marks} | " + " | ".join(cells) + " |")
    for verdict in sorted(set(verdicts)):
        print(f"{verdict}: {verdicts.count(verdict)} of {len(verdicts)}")
    if options.details:
        print("\n".join(details))
    return 0


if __name__ == "__main__":
    sys.exit(main())
