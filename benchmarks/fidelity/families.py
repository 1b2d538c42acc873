"""The model families of the table: a chat template, the tokenizer that belongs to it, and a task in its own words.

Promise: a turn is written as the template itself writes such a turn; a feature that the family's format cannot say is
left out of the task and shown as such.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from turnwire.parsers import Dialect, Parser, detect, resolve, start_state
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.templates.template import ChatTemplate
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Block, BlockOpened, Message, ReasoningBlock, TextBlock, Tool, ToolCallBlock

# Template file, tokenizer folder or file, and whether that tokenizer is the family's own.
FAMILIES: dict[str, tuple[str, str, bool]] = {
    "Qwen3": ("Qwen-Qwen3-0.6B", "qwen3-3.7.2", True),
    "Qwen3-Coder": ("Qwen3-Coder", "qwen3-3.7.2", True),
    "Qwen3.5": ("Qwen3.5-4B", "qwen3-3.7.2", True),
    "Qwen2.5": ("Qwen-Qwen2.5-7B-Instruct", "qwen2_5-3.7.2", True),
    "DeepSeek V3.1": ("deepseek-ai-DeepSeek-V3.1", "deepseek_v3-3.7.2", True),
    "DeepSeek V3.2": ("deepseek-ai-DeepSeek-V3.2", "deepseek_v3-3.7.2", True),
    "Llama 3.1": ("meta-llama-Llama-3.1-8B-Instruct", "llama3_2-3.7.2", True),
    "gpt-oss": ("openai-gpt-oss-120b", "gptoss-3.7.2", True),
    "Mistral Small 3.2": ("Mistral-Small-3.2-24B-Instruct-2506", "tekken.json", True),
    "Gemma 4": ("google-gemma-4-31B-it", "gemma3-3.7.2", False),
    "GLM 4.7": ("GLM-4.7-Flash", "qwen3-3.7.2", False),
    "Kimi K2 Thinking": ("Kimi-K2-Thinking", "qwen3-3.7.2", False),
    "MiniMax M2": ("MiniMax-M2", "qwen3-3.7.2", False),
    "Nemotron 3 Nano": ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-3.7.2", False),
}
FILE = "notes on calls.txt"


class Task(msgspec.Struct):
    """The turns of the task, what the third writes into a file, and which features the family can say."""

    dialect: str
    lines: list[str]
    markup: str
    parallel: bool
    thinks: bool
    interleaves: bool


def task(template_file: Path, tokenizer: Path, shell: str, command: str, more: dict[str, Any]) -> Task:
    """Six turns that use a client's shell tool `shell`, whose argument is called `command` (with `more`): two calls
    at once, twice two with a thought between them, a file that speaks of the family's own markup, reading it back, and
    an answer."""
    source = template_file.read_text(encoding="utf-8")
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    template = ChatTemplate(source, special, clock=lambda: datetime(2026, 1, 2))
    builder = PromptBuilder(template, load_tokenizer(str(tokenizer)))
    found = detect("", source).dialect or resolve("plain")
    schema = {"type": "object", "properties": {command: {"type": "string"}}, "required": [command]}
    tool = Tool(name=shell, description="Runs a command.", schema=schema)
    number = 0

    def said(thought: str, text: str, *commands: str) -> str:
        nonlocal number
        blocks: list[Block] = [ReasoningBlock(text=thought)] if thought and builder.traits.thinks else []
        blocks += [TextBlock(text=text)] if text else []
        for each in commands:
            arguments = json.dumps({command: each, **more}, ensure_ascii=False)
            blocks.append(ToolCallBlock(id=f"call{number:05}", name=shell, arguments=arguments))
            number += 1
        message = Message(role="assistant", blocks=tuple(blocks))
        splicer = TemplateSplicer(template, builder.traits, [message], [tool], [])
        written = splicer.rewritten(message, builder.traits.thinking_on)
        if written is None:
            raise ValueError(f"{template_file.stem} cannot write {message}")
        return written

    example = said("I quote myself.", "", "ls -la")
    markup = f"A call of this model looks so:\n{example}\nand so it ends.".replace("EOF", "")
    first = said("Both at once: “one” and two.", "", "echo o''ne", "echo tw''o")
    parallel = _order(found, builder, tool, first).count("tool_call") == 2 and "assistant<|end_header_id|>" not in first
    if not parallel:
        first = said("Only one: “one”.", "", "echo o''ne")
    apart = said("First three.", "", "echo thr''ee"), said("Then four.", "", "echo fo''ur")
    interleaves = builder.traits.thinks and _order(found, builder, tool, "".join(apart)) == [
        "reasoning", "tool_call", "reasoning", "tool_call",
    ]  # fmt: skip
    second = "".join(apart) if interleaves else apart[0]
    apart = said("Now five.", "", "echo fi''ve"), said("Then six.", "", "echo si''x")
    third = "".join(apart) if interleaves else apart[0]
    write = f"cat > '{FILE}' <<'EOF'\n{markup}\nEOF"
    lines = [
        first,
        second,
        third,
        said("Now the file.", "", write),
        said("Read it again.", "", f"cat '{FILE}'"),
        _answer(builder, "All four steps are done."),
    ]
    return Task(found.name, lines, markup, parallel, builder.traits.thinks, interleaves)


def _answer(builder: PromptBuilder, text: str) -> str:
    """The last turn, after which no other comes: a thought that the prompt opened is closed."""
    opened = (
        builder.traits.thinks and builder.traits.thought_open and builder.traits.thought_open in builder.traits.tail_on
    )
    return f"All is done.{builder.traits.thought_close}{text}" if opened else text


def _order(dialect: Dialect, builder: PromptBuilder, tool: Tool, text: str) -> list[str]:
    """Which kinds of block the text is read as, in order."""
    parser = Parser(dialect, (tool,), start_state(builder.traits.tail_on or "", dialect))
    events = [*parser.feed(text), *parser.finish("stop")]
    return [event.kind for event in events if isinstance(event, BlockOpened)]
