"""What is known of a chat template: a frozen value that chooses how history is dressed and how turns are spliced.

Promise: a `TemplateTraits` says everything the prompt builder has to know about a template; nothing is looked up in
the template's source.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["KeptThought", "ReasoningField", "TemplateTraits", "TurnEnds"]

ReasoningField = Literal["reasoning_content", "reasoning", "thinking", "thought", "parts"]
"""Where a template reads a thought: a field of the message, or a content part of type `thinking`."""

KeptThought = Literal["tool_before", "text_before", "tool_after"]
"""Which thoughts survive: of tool turns before the last user message, of plain answers before it, of tool turns after
it (the running loop)."""


class TurnEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Where an assistant turn's own text ends in rendered history. `calls` says that the template writes calls at all;
    `call_close` is what a call writes after its last argument; `to_tool` and `to_user` are the text that always
    follows a turn with calls before its results, and a plain turn before a user message; None means that shape could
    not be rendered. `local` says that what follows a turn depends on nothing before it but the system text and the
    last user message, so it can be rendered without the rest of the conversation."""

    calls: bool = True
    call_close: str = ""
    to_tool: str | None = None
    to_user: str | None = None
    local: bool = True


class TemplateTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What rendering small conversations showed. `None` means: the template has no such thing. `tail` is the generation
    header by default, `tail_on` and `tail_off` those with thinking switched; `thought_open` is what `tail_on` pre-fills
    of a thought, `thought_close` the mark that ends one. `fixed_history` says that what is written before a question
    stays as it is when the conversation goes on, and that a part of it reads the same without the rest. `blank` says
    that no rendering shows the user's words. `image` is the text that stands for an image which the engine gets beside
    the prompt; None: the model is shown no images."""

    reasoning_field: ReasoningField | None = "reasoning_content"
    kept: tuple[KeptThought, ...] = ("tool_after",)
    kept_with_switch: tuple[KeptThought, ...] = ()
    history_switch: dict[str, Any] = {}
    thinking_on: dict[str, Any] = {}
    thinking_off: dict[str, Any] | None = None
    thinking_default: bool = False
    effort_argument: str | None = None
    effort_values: tuple[str, ...] = ()
    strips_thoughts: bool = False
    tools: bool = True
    tools_empty: Literal["none", "list"] = "none"
    tools_follow_last_user: bool = False
    arguments: Literal["object", "text"] = "object"
    content: Literal["text", "parts"] = "text"
    system: bool = True
    empty_system: bool = False
    mid_system: Literal["system", "developer"] | None = None
    parallel_calls: bool = True
    user_after_user: bool = True
    user_after_tool: bool = True
    tool_role: bool = True
    text_with_calls: bool = True
    simple_schemas: bool = False
    call_ids: Literal["any", "nine", "kimi"] = "any"
    tail: str = ""
    tail_on: str = ""
    tail_off: str | None = None
    thought_open: str = ""
    thought_close: str = ""
    turn_ends: TurnEnds = TurnEnds()
    fixed_history: bool = False
    blank: bool = False
    image: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def thinks(self) -> bool:
        """Whether thoughts play any part in this template."""
        return self.reasoning_field is not None or self.thinking_off is not None or self.strips_thoughts
