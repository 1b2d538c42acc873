"""A chat template: messages in the shape templates read, to text.

Promise: rendering is a pure function of its arguments (the clock is given), bounded, and fails only with
TemplateFailure. The encodings of models that ship no template offer the same `Renderer` face.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import resources
from typing import Any, Protocol, TypeAlias

from turnwire.prompts.templates.sandbox import Budget, TemplateFailure, compile_template, render_template, variables_of

__all__ = ["ChatTemplate", "Renderer", "TemplateFailure", "TemplateMessage", "default_template"]

TemplateMessage: TypeAlias = dict[str, Any]
"""One message as a template reads it: role, content, tool_calls, a reasoning field, ..."""


class Renderer(Protocol):
    """Turns template messages into prompt text. `generation` asks for the header of the next assistant turn.
    `end_tokens` are the tokens with which its model may end a turn, as far as it knows them; `stamp` changes with the
    day where that shows in what is rendered."""

    @property
    def end_tokens(self) -> tuple[str, ...]: ...

    @property
    def stamp(self) -> str: ...

    def render(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation: bool = True,
        args: Mapping[str, Any] | None = None,
    ) -> str: ...


class ChatTemplate:
    """A Jinja chat template. `special` gives the tokens a template may write by name (`bos_token`, `eos_token`, ...);
    `clock` serves `strftime_now`; without it that function does not exist, as a template can ask. `budget` makes the
    bounds of each rendering."""

    def __init__(
        self,
        source: str,
        special: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], datetime] | None = None,
        budget: Callable[[], Budget] = Budget,
    ) -> None:
        self.source = source
        self._budget = budget
        self._special = {"bos_token": "", "eos_token": "", **(special or {})}
        self._clock = clock
        self._template = compile_template(source)
        self._mutable = False
        self._wants = variables_of(source)

    @property
    def end_tokens(self) -> tuple[str, ...]:
        return (self._special["eos_token"],) if self._special["eos_token"] else ()

    @property
    def stamp(self) -> str:
        if self._clock is None or not self._wants & {"strftime_now", "datetime"}:
            return ""
        return self._clock().strftime("%Y-%m-%d")

    def with_clock(self, clock: Callable[[], datetime]) -> ChatTemplate:
        """The same template at another time."""
        return ChatTemplate(self.source, self._special, clock=clock, budget=self._budget)

    def render(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation: bool = True,
        args: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text. `args` are the template's own switches and cannot hide the conversation."""
        variables = {
            **self._special,
            **self._elder(tools),
            **(args or {}),
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": generation,
        }
        try:
            return self._run(variables)
        except TemplateFailure as failure:
            if failure.kind != "forbidden" or self._mutable:
                raise
        # Some templates keep their own lists by append and pop; let them, on copies.
        permissive = compile_template(self.source, mutable=True)
        text = render_template(permissive, copy.deepcopy(variables), clock=self._clock, budget=self._budget())
        self._template, self._mutable = permissive, True
        return text

    def _elder(self, tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Names that older templates take instead of `tools` and `strftime_now`."""
        names: dict[str, Any] = {}
        if "functions" in self._wants:
            names["functions"] = json.dumps(list(tools or []), indent=4, ensure_ascii=False)
        if "datetime" in self._wants and self._clock is not None:
            names["datetime"] = self._clock().strftime("%Y-%m-%d")
        return names

    def _run(self, variables: dict[str, Any]) -> str:
        given = copy.deepcopy(variables) if self._mutable else variables
        return render_template(self._template, given, clock=self._clock, budget=self._budget())


def default_template(*, clock: Callable[[], datetime] | None = None) -> ChatTemplate:
    """The project's own template, for models that bring none."""
    source = resources.files("turnwire.prompts").joinpath("data/turnwire.jinja").read_text("utf-8")
    return ChatTemplate(source, {"bos_token": "", "eos_token": "<|im_end|>"}, clock=clock)
