"""Harmony, the encoding of gpt-oss: messages on channels.

Promise: analysis, commentary, calls and final answers each on their channel and in the order of the turn; results under
the name of the tool that gave them, for any number of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from turnwire.prompts.templates.encodings.messages import calls_of, compact, text_of, thought_of
from turnwire.prompts.templates.encodings.typescript import declared
from turnwire.prompts.templates.sandbox import TemplateFailure
from turnwire.prompts.templates.template import TemplateMessage

__all__ = ["HarmonyEncoding"]


class HarmonyEncoding:
    """Renders as a chat template does. Switches: `reasoning_effort` (low, medium, high), `model_identity`, and
    `preserve_thinking`, which keeps the analysis of turns that came before a final answer."""

    end_tokens = ("<|return|>", "<|call|>", "<|end|>")

    def __init__(
        self, *, clock: Callable[[], datetime] | None = None, identity: str = "You are a large language model."
    ) -> None:
        self._clock = clock
        self._identity = identity

    @property
    def stamp(self) -> str:
        return self._clock().strftime("%Y-%m-%d") if self._clock is not None else ""

    def render(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation: bool = True,
        args: Mapping[str, Any] | None = None,
    ) -> str:
        given = args or {}
        pieces = [_message("system", self._system(given, bool(tools)))]
        history = list(messages)
        instructions = ""
        if history and history[0]["role"] in ("system", "developer"):
            instructions = text_of(history.pop(0))
        developer = _developer(instructions, tools or ())
        if developer:
            pieces.append(_message("developer", developer))
        keep = bool(given.get("preserve_thinking"))
        last_final = max((i for i, message in enumerate(history) if _is_final(message)), default=-1)
        names: dict[str, str] = {}
        for position, message in enumerate(history):
            role = message["role"]
            if role == "assistant":
                pieces.extend(_turn(message, keep or position > last_final, names))
            elif role == "tool":
                name = names.get(str(message.get("tool_call_id"))) or str(message.get("name") or "tool")
                pieces.append(_message(f"functions.{name} to=assistant<|channel|>commentary", text_of(message)))
            elif role in ("user", "system", "developer"):
                pieces.append(_message("user" if role == "user" else "developer", text_of(message)))
            else:
                raise TemplateFailure("refused", f"role {role} is unknown to harmony")
        if generation:
            pieces.append("<|start|>assistant")
        return "".join(pieces)

    def _system(self, given: Mapping[str, Any], tools: bool) -> str:
        lines = [str(given.get("model_identity") or self._identity)]
        if self._clock is not None:
            lines.append(f"Current date: {self._clock():%Y-%m-%d}")
        effort = given.get("reasoning_effort") or "medium"
        channels = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
        if tools:
            channels += "\nCalls to these tools must go to the commentary channel: 'functions'."
        return "\n".join(lines) + f"\n\nReasoning: {effort}\n\n{channels}"


def _message(header: str, body: str, end: str = "<|end|>") -> str:
    return f"<|start|>{header}<|message|>{body}{end}"


def _is_final(message: TemplateMessage) -> bool:
    return bool(message["role"] == "assistant" and not message.get("tool_calls"))


def _developer(instructions: str, tools: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"# Instructions\n\n{instructions}"] if instructions else []
    if tools:
        types = "\n\n".join(declared(tool.get("function", tool)) for tool in tools)
        parts.append(f"# Tools\n\n## functions\n\nnamespace functions {{\n\n{types}\n\n}} // namespace functions")
    return "\n\n".join(parts)


def _turn(message: TemplateMessage, shown: bool, names: dict[str, str]) -> list[str]:
    pieces: list[str] = []
    thought, text = thought_of(message), text_of(message)
    if thought and shown:
        pieces.append(_message("assistant<|channel|>analysis", thought))
    calls = message.get("tool_calls") or ()
    if not calls:
        return [*pieces, _message("assistant<|channel|>final", text)]
    if text:
        pieces.append(_message("assistant<|channel|>commentary", text))
    for call, function in zip(calls, calls_of(message), strict=True):
        names[str(call.get("id"))] = str(function["name"])
        given = function.get("arguments")
        body = given if isinstance(given, str) else compact(given)
        header = f"assistant<|channel|>commentary to=functions.{function['name']} <|constrain|>json"
        pieces.append(_message(header, body, "<|call|>"))
    return pieces
