"""A client's wish for thinking, as each kind of server is asked for it.

Promise: on, off, an effort and a budget are said to every server that has a word for them; what it has no word for is
said in the nearest one, with a note. A wish that was not made is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from turnwire.turns import Note, Thinking

__all__ = ["Switches", "thinking_fields"]

Switches: TypeAlias = Callable[[Thinking], Mapping[str, Any]]
"""What a wish means to one model's chat template, as template arguments."""

Said: TypeAlias = tuple[dict[str, object], list[Note]]

# A thinking budget in words, for servers that know only efforts.
_EFFORTS = ((2_048, "low"), (8_192, "medium"))
_NEAREST = {"minimal": "low", "xhigh": "high", "max": "high"}


def thinking_fields(server: str, thinking: Thinking, switches: Switches | None = None) -> Said:
    """The fields of a request that say the wish, and notes on what they cannot say."""
    if thinking.mode is None and thinking.effort is None and thinking.budget is None:
        return {}, []
    return _WORDS.get(server, _by_effort)(thinking, switches)


def _by_template(thinking: Thinking, switches: Switches | None) -> Said:
    """Engines that render the template themselves: its own arguments, by the model's profile or the usual names."""
    known = dict(switches(thinking)) if switches is not None else {}
    fields: dict[str, object] = {}
    notes = []
    if not known and thinking.mode in ("on", "off"):
        known = {"enable_thinking": thinking.mode == "on", "thinking": thinking.mode == "on"}
    if known:
        fields["chat_template_kwargs"] = known
    if thinking.mode != "off" and thinking.effort is not None:
        fields["reasoning_effort"] = thinking.effort
    if thinking.mode != "off" and thinking.budget is not None and thinking.budget not in known.values():
        notes.append(Note("upstream.thinking_budget", "The model's template takes no budget for thoughts."))
    return fields, notes


def _by_effort(thinking: Thinking, switches: Switches | None) -> Said:
    """Servers whose only word is `reasoning_effort`."""
    if thinking.mode == "off":
        return {"reasoning_effort": "none"}, []
    if thinking.effort is not None:
        return {"reasoning_effort": thinking.effort}, []
    if thinking.budget is not None:
        effort = _effort_of(thinking.budget)
        note = Note("upstream.thinking_budget", f"The server takes no budget for thoughts; it was asked for {effort}.")
        return {"reasoning_effort": effort}, [note]
    return ({"reasoning_effort": "medium"} if thinking.mode == "on" else {}), []


def _ollama(thinking: Thinking, switches: Switches | None) -> Said:
    """Ollama knows three efforts and `none`."""
    fields, notes = _by_effort(thinking, switches)
    effort = fields.get("reasoning_effort")
    if isinstance(effort, str):
        fields["reasoning_effort"] = _NEAREST.get(effort, effort)
    return fields, notes


def _openrouter(thinking: Thinking, switches: Switches | None) -> Said:
    """One object: an effort or a budget, never both."""
    if thinking.mode == "off":
        return {"reasoning": {"enabled": False}}, []
    if thinking.budget is not None:
        return {"reasoning": {"max_tokens": thinking.budget}}, []
    if thinking.effort is not None:
        return {"reasoning": {"effort": "xhigh" if thinking.effort == "max" else thinking.effort}}, []
    return {"reasoning": {"enabled": True}}, []


def _litellm(thinking: Thinking, switches: Switches | None) -> Said:
    """LiteLLM turns an effort into the words of the provider it asks, and refuses it where that has none, unless it may
    drop it."""
    fields, notes = _by_effort(thinking, switches)
    return (fields | {"drop_params": True} if fields else fields), notes


def _effort_of(budget: int) -> str:
    return next((effort for most, effort in _EFFORTS if budget <= most), "high")


_WORDS: Mapping[str, Callable[[Thinking, Switches | None], Said]] = {
    "vllm": _by_template,
    "sglang": _by_template,
    "trtllm": _by_template,
    "llamacpp": _by_template,
    "nim": _by_template,
    "ollama": _ollama,
    "lmstudio": _by_effort,
    "openai": _by_effort,
    "openrouter": _openrouter,
    "litellm": _litellm,
}
