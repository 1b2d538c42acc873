"""Learning what a chat template does with thoughts: where it reads them, which it keeps, how they are switched.

Promise: found by rendering alone, within the tables of `switches`; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from turnwire.prompts.templates.probing.samples import (
    SampleTurns,
    TrialRenderer,
    after,
    call_turn,
    common_prefix,
    mark,
    markers,
    said_by_user,
    tool,
)
from turnwire.prompts.templates.switches import EFFORTS, HISTORY_SWITCHES, THINKING_SWITCHES
from turnwire.prompts.templates.template import TemplateMessage
from turnwire.prompts.templates.traits import KeptThought, ReasoningField

__all__ = ["ThoughtProbe", "with_thought"]

_THOUGHTS: dict[KeptThought, str] = {
    "tool_before": mark("thoughtA"),
    "text_before": mark("thoughtB"),
    "tool_after": mark("thoughtC"),
}
_LATEST = mark("thoughtD")


class ThoughtProbe:
    """Questions about thoughts, put to the template on `renderer`; `args` are the switches it is asked with."""

    def __init__(self, renderer: TrialRenderer, turns: SampleTurns) -> None:
        self.renderer = renderer
        self.turns = turns

    def switches(self) -> tuple[dict[str, Any], dict[str, Any] | None, bool]:
        """(arguments that turn thinking on, arguments that turn it off, whether it is on by default)."""
        sample = [said_by_user("go")]
        default = self.renderer.show(sample)
        for on, off in THINKING_SWITCHES:
            with_on, with_off = self.renderer.show(sample, args=on), self.renderer.show(sample, args=off)
            if with_on is None or with_off is None or with_on == with_off:
                continue
            if "reasoning_effort" in on and self.tail(on) == self.tail(off):
                continue  # only a word about effort, no switch
            return dict(on), dict(off), default == with_on
        return {}, None, False

    def effort(self, args: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
        """The argument that sets how hard to think, and the values that make a difference."""
        sample = [{"role": "system", "content": "top"}, said_by_user("go")]
        for name, values in EFFORTS:
            shown = {value: self.renderer.show(sample, args={**args, name: value}) for value in values}
            accepted = {value: text for value, text in shown.items() if text is not None}
            if len(set(accepted.values())) > 1:
                free = self.renderer.show(sample, args={**args, name: mark("effort")})
                printed = free is not None and mark("effort") in free
                # A template that prints any word does not say which words the model knows; these three all do.
                return name, ("low", "medium", "high") if printed else tuple(accepted)
        return None, ()

    def _story(self, field: ReasoningField) -> list[TemplateMessage]:
        """Two user turns: a tool step and an answer before the last user message, two tool steps after it."""

        def step(position: int, thought: str) -> list[TemplateMessage]:
            call_id = self.turns.ids[position % 2][:-1] + str(position)
            turn = call_turn((call_id, "alpha", self.turns.made("v")))
            result = {"role": "tool", "tool_call_id": call_id, "name": "alpha", "content": "done"}
            return [with_thought(turn, field, thought), result]

        answer: TemplateMessage = {"role": "assistant", "content": "answer"}
        return [
            {"role": "system", "content": "top"},
            said_by_user("first"),
            *step(3, _THOUGHTS["tool_before"]),
            with_thought(answer, field, _THOUGHTS["text_before"]),
            said_by_user("second"),
            *step(4, _THOUGHTS["tool_after"]),
            *step(5, _LATEST),
        ]

    def _told(self, field: ReasoningField, args: Mapping[str, Any]) -> str:
        story = self._story(field)
        text = self.renderer.show(story, tools=[tool("alpha")], args=args)
        if text is None:
            text = self.renderer.show(story[1:], tools=[tool("alpha")], args=args)
        return text or ""

    def field(self, args: Mapping[str, Any]) -> ReasoningField | None:
        best: tuple[int, ReasoningField | None] = (0, None)
        for field in get_args(ReasoningField):
            for extra in ({}, *(dict(switch) for switch in HISTORY_SWITCHES)):
                text = self._told(field, {**args, **extra})
                found = sum(thought in text for thought in (*_THOUGHTS.values(), _LATEST))
                if field == "parts" and ("'thinking'" in text or '"thinking"' in text):
                    found = 0  # the list itself was printed
                if found > best[0]:
                    best = (found, field)
        return best[1]

    def kept(self, field: ReasoningField | None, args: Mapping[str, Any]) -> tuple[KeptThought, ...]:
        if field is None:
            return ()
        text = self._told(field, args)
        return tuple(kind for kind, thought in _THOUGHTS.items() if thought in text)

    def history_switch(
        self, field: ReasoningField | None, kept: tuple[KeptThought, ...], args: Mapping[str, Any]
    ) -> dict[str, Any]:
        if field is None:
            return {}
        best, most = {}, len(kept)
        for switch in HISTORY_SWITCHES:
            found = len(self.kept(field, {**args, **switch}))
            if found > most:
                best, most = dict(switch), found
        return best

    def strips(self) -> bool:
        """Whether a thought that stands in an earlier turn's text is cut away."""
        turn: TemplateMessage = {"role": "assistant", "content": f"{mark('thought')}</think>{mark('word')}"}
        text = self.renderer.show([said_by_user("first"), turn, said_by_user("second")])
        return text is not None and mark("word") in text and mark("thought") not in text

    def marks(self, field: ReasoningField | None, args: Mapping[str, Any], on: str, off: str | None) -> tuple[str, str]:
        """What the generation header `on` pre-fills of a thought, and the mark that ends one."""
        if field is None:
            return _marks_of_headers(on, off)
        closer, prefilled = "", False
        thought = mark("thought")
        plain = [
            said_by_user("go"),
            with_thought({"role": "assistant", "content": mark("word")}, field, thought),
        ]
        step = self.turns.loop()
        step[1] = with_thought(step[1], field, thought)
        shown = self.renderer.show(plain, args=args), self.renderer.show(step, tools=[tool("alpha")], args=args)
        for text, end in zip(shown, (mark("word"), mark("arg")), strict=True):
            rest = after(text, thought)
            if text is not None and rest is not None and end in rest:
                closer = closer or _first_mark(rest[: rest.find(end)])
                prefilled = prefilled or text[: text.rfind(thought)].rstrip().endswith(on.rstrip())
        return (_opener(on, off) if prefilled else ""), closer

    def tail(self, args: Mapping[str, Any]) -> str:
        """The generation header after a plain user message."""
        sample = [said_by_user(mark("user"))]
        whole = self.renderer.show(sample, args=args)
        bare = self.renderer.show(sample, generation=False, args=args)
        if whole is None:
            return ""
        if bare is not None and whole != bare and whole.startswith(bare):
            return whole[len(bare) :]
        return after(whole, mark("user")) or ""


def with_thought(turn: TemplateMessage, field: ReasoningField, thought: str) -> TemplateMessage:
    """A turn with a thought in the place a template reads it from."""
    if field != "parts":
        return {**turn, field: thought}
    parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": thought}]
    if turn["content"]:
        parts.append({"type": "text", "text": turn["content"]})
    return {**turn, "content": parts}


def _marks_of_headers(on: str, off: str | None) -> tuple[str, str]:
    """Where no thought shows in history, the header of a turn without one still closes it."""
    if off is None or on == off:
        return "", ""
    only = [off[start:end] for start, end in markers(off) if off[start:end] not in on]
    prefilled = any(off[start:end] in on[start - end - 2 :] for start, end in markers(off))
    begun = on.rstrip()
    if off.startswith(begun) and len(markers(off[len(begun) :])) > 1:
        prefilled = False  # the header without a thought opens one itself before it closes it
    return (_opener(on, off) if prefilled else ""), (only[-1] if only else "")


def _first_mark(text: str) -> str:
    """The first control token of `text`; a tag that is spelled by two tokens around a word counts as one."""
    found = markers(text)
    if not found:
        return text.strip()
    start, end = found[0]
    if len(found) > 1 and text[end : found[1][0]].isalpha():
        end = found[1][1]
    return text[start:end]


def _opener(on: str, off: str | None) -> str:
    """The part of a generation header that opens a thought."""
    found = markers(on)
    if not found:
        return ""
    shared = len(common_prefix(on, off)) if off is not None else len(on)
    for start, end in found:
        if start <= shared < end or (end == shared and not on[end : end + 1].isspace() and end < len(on)):
            return on[start:]
    return on[found[-1][0] :]
