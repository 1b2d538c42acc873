"""DeepSeek V3.2 and V4: DSML calls, thinking that goes on between tool rounds.

Promise: the control tokens, call markup and result framing of these models; the words that explain the tools are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from turnwire.prompts.templates.encodings.messages import arguments_of, calls_of, compact, text_of, thought_of
from turnwire.prompts.templates.sandbox import TemplateFailure
from turnwire.prompts.templates.template import TemplateMessage

__all__ = ["DeepSeekEncoding"]

_BOS, _EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
_USER, _ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
_OPEN, _CLOSE = "<think>", "</think>"
_DSML = "｜DSML｜"
_MAX_EFFORT = "Think as long and as carefully as the problem could possibly need before you answer.\n\n"


class DeepSeekEncoding:
    """Renders as a chat template does. Switches: `thinking` (or `enable_thinking`), `reasoning_effort` (`max`),
    `drop_thinking` (V4: false keeps thoughts of a conversation without tools)."""

    end_tokens = (_EOS,)
    stamp = ""

    def __init__(self, version: Literal["v3.2", "v4"] = "v4") -> None:
        self._late = version == "v4"
        self._block = "tool_calls" if self._late else "function_calls"

    def render(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation: bool = True,
        args: Mapping[str, Any] | None = None,
    ) -> str:
        given = args or {}
        thinking = bool(given.get("thinking", given.get("enable_thinking", False)))
        pieces = [_BOS]
        if self._late and thinking and given.get("reasoning_effort") == "max":
            pieces.append(_MAX_EFFORT)
        pieces.append(self._opening(messages, tools))
        asked = [place for place, message in enumerate(messages) if message["role"] in ("user", "developer")]
        last_user = asked[-1] if asked else -1
        loops = bool(tools) or any(message["role"] == "tool" for message in messages)
        keeps = self._late and (loops or given.get("drop_thinking") is False)
        for position, message in enumerate(messages):
            before = messages[position - 1]["role"] if position else ""
            following = messages[position + 1]["role"] if position + 1 < len(messages) else ""
            role = message["role"]
            if role in ("user", "developer"):
                pieces.append(self._asked(text_of(message), before))
            elif role == "tool":
                pieces.append(self._result(text_of(message), before, following))
            elif role == "assistant":
                shown = thinking and (keeps or position > last_user)
                pieces.append(self._header(before) + self._turn(message, shown))
            elif role != "system":
                raise TemplateFailure("refused", f"role {role} is unknown to this encoding")
        if generation:
            pieces.append(self._header(messages[-1]["role"] if messages else ""))
            off = _CLOSE if self._late else _OPEN + _CLOSE
            pieces.append(_OPEN if thinking else off)
        return "".join(pieces)

    def _opening(self, messages: Sequence[TemplateMessage], tools: Sequence[Mapping[str, Any]] | None) -> str:
        parts = [text_of(message) for message in messages if message["role"] == "system"]
        if tools:
            parts.append(self._explained(tools))
        return "\n\n".join(parts)

    def _explained(self, tools: Sequence[Mapping[str, Any]]) -> str:
        example = (
            f"<{_DSML}{self._block}>\n"
            f'<{_DSML}invoke name="$NAME">\n'
            f'<{_DSML}parameter name="$KEY" string="true|false">$VALUE</{_DSML}parameter>\n'
            f"</{_DSML}invoke>\n"
            f"</{_DSML}{self._block}>"
        )
        schemas = "\n".join(compact(tool.get("function", tool)) for tool in tools)
        return (
            "## Tools\n\nTools can help with the request. To use them, end the reply with one block of this form, with "
            f'one invoke per call:\n\n{example}\n\nText values are written as they are, with string="true"; every '
            'other value is JSON, with string="false". Thoughts come before the block.\n\n### Available tools\n\n'
            f"{schemas}\n"
        )

    def _asked(self, text: str, before: str) -> str:
        # V4 gathers the results and the text of one user turn after one mark.
        joined = self._late and before in ("user", "developer", "tool")
        return ("\n\n" if joined else _USER) + text

    def _result(self, text: str, before: str, following: str) -> str:
        if self._late:
            return self._asked(f"<tool_result>{text}</tool_result>", before)
        opening = "" if before == "tool" else "\n\n<function_results>"
        closing = "" if following == "tool" else "\n</function_results>"
        return f"{opening}\n<result>{text}</result>{closing}"

    def _header(self, before: str) -> str:
        return "\n\n" if before == "tool" and not self._late else _ASSISTANT

    def _turn(self, message: TemplateMessage, shown: bool) -> str:
        pieces = [_OPEN + thought_of(message) + _CLOSE if shown else _CLOSE, text_of(message)]
        calls = calls_of(message)
        if calls:
            invokes = "".join(self._invoke(call) for call in calls)
            pieces.append(f"\n\n<{_DSML}{self._block}>\n{invokes}</{_DSML}{self._block}>")
        return "".join(pieces) + _EOS

    def _invoke(self, call: Mapping[str, Any]) -> str:
        lines = [f'<{_DSML}invoke name="{call["name"]}">']
        for key, value in arguments_of(call).items():
            plain = isinstance(value, str)
            written = value if plain else compact(value)
            kind = "true" if plain else "false"
            lines.append(f'<{_DSML}parameter name="{key}" string="{kind}">{written}</{_DSML}parameter>')
        return "\n".join([*lines, f"</{_DSML}invoke>\n"])
