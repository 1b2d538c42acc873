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

from turnwire.parsers import Parser, detect, resolve, start_state
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

    lines: list[str]
    markup: str
    parallel: bool
    thinks: bool
    interleaves: bool


class Voice:
    """A family's own words: turns written as its template writes them. `shell` is the client's tool, `command` its
    argument, `more` what else the tool wants."""

    def __init__(self, template_file: Path, tokenizer: Path, shell: str, command: str, more: dict[str, Any]) -> None:
        source = template_file.read_text(encoding="utf-8")
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        self._name = template_file.stem
        self._template = ChatTemplate(source, special, clock=lambda: datetime(2026, 1, 2))
        self._builder = PromptBuilder(self._template, load_tokenizer(str(tokenizer)))
        self._dialect = detect("", source).dialect or resolve("plain")
        schema = {"type": "object", "properties": {command: {"type": "string"}}, "required": [command]}
        self._tool = Tool(name=shell, description="Runs a command.", schema=schema)
        self._command = command
        self._more = more
        self._number = 0

    @property
    def dialect(self) -> str:
        return self._dialect.name

    @property
    def thinks(self) -> bool:
        return self._builder.traits.thinks

    def said(self, thought: str, text: str, *commands: str) -> str:
        """A turn: a thought where the family thinks, text, and calls of the shell."""
        blocks: list[Block] = [ReasoningBlock(text=thought)] if thought and self.thinks else []
        blocks += [TextBlock(text=text)] if text else []
        for each in commands:
            arguments = json.dumps({self._command: each, **self._more}, ensure_ascii=False)
            blocks.append(ToolCallBlock(id=f"call{self._number:05}", name=self._tool.name, arguments=arguments))
            self._number += 1
        message = Message(role="assistant", blocks=tuple(blocks))
        traits = self._builder.traits
        written = TemplateSplicer(self._template, traits, [message], [self._tool], []).rewritten(
            message, traits.thinking_on
        )
        if written is None:
            raise ValueError(f"{self._name} cannot write {message}")
        return written

    def answered(self, text: str) -> str:
        """A turn of text alone: a thought that the prompt opened is closed."""
        traits = self._builder.traits
        opened = traits.thinks and traits.thought_open and traits.thought_open in traits.tail_on
        return f"All is done.{traits.thought_close}{text}" if opened else text

    def order(self, text: str) -> list[str]:
        """Which kinds of block the text is read as, in order."""
        start = start_state(self._builder.traits.tail_on or "", self._dialect)
        parser = Parser(self._dialect, (self._tool,), start)
        events = [*parser.feed(text), *parser.finish("stop")]
        return [event.kind for event in events if isinstance(event, BlockOpened)]


def task(voice: Voice) -> Task:
    """Six turns by the client's shell tool: two calls at once, twice two with a thought between them, a file that
    speaks of the family's own markup, reading it back, and an answer."""
    said = voice.said
    example = said("I quote myself.", "", "ls -la")
    markup = f"A call of this model looks so:\n{example}\nand so it ends.".replace("EOF", "")
    first = said("Both at once: “one” and two.", "", "echo o''ne", "echo tw''o")
    parallel = voice.order(first).count("tool_call") == 2 and "assistant<|end_header_id|>" not in first
    if not parallel:
        first = said("Only one: “one”.", "", "echo o''ne")
    apart = said("First three.", "", "echo thr''ee"), said("Then four.", "", "echo fo''ur")
    interleaves = voice.thinks and voice.order("".join(apart)) == ["reasoning", "tool_call", "reasoning", "tool_call"]
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
        voice.answered("All four steps are done."),
    ]
    return Task(lines, markup, parallel, voice.thinks, interleaves)
