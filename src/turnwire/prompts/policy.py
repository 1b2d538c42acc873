"""The replay policy: which template switches a request gets, and which earlier turns are replayed exactly.

Promise: inside the running tool loop every turn is exact. Across user turns the model's own rule holds unless the
request, then the operator, says otherwise; what a request may say to a template is an allow-list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from turnwire.conventions import nearest_effort
from turnwire.message_facts import MessageFacts, message_facts
from turnwire.prompts.notes import noted
from turnwire.prompts.templates.switches import ALLOWED_ARGUMENTS
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Conversation, HistoryThinking, Note, Thinking

__all__ = ["PromptPlan", "ReplayPolicy", "Wished"]


class PromptPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was decided for one prompt. `exact` and `bare` hold indices of assistant messages: to be replayed exactly
    where they can be recalled, and to be shown without their thoughts."""

    args: dict[str, Any]
    thinking: bool
    history: HistoryThinking
    exact: frozenset[int]
    bare: frozenset[int] = frozenset()
    notes: tuple[Note, ...] = ()


class Wished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a request's wishes mean to the template, whatever its messages say."""

    args: dict[str, Any]
    thinking: bool
    history: HistoryThinking
    notes: tuple[Note, ...] = ()


class ReplayPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's wishes. `auto` keeps earlier thoughts when thinking is on and the template has a way to keep them,
    and follows the template's own rule otherwise. `known` says what a wish for thinking means to this very model's
    template, where somebody knows that; it counts for more than what probing found, and less than the request."""

    history: Literal["auto", "keep", "model", "drop"] = "auto"
    allowed: frozenset[str] = ALLOWED_ARGUMENTS
    known: Callable[[Thinking], dict[str, Any]] | None = None

    def plan(self, conversation: Conversation, traits: TemplateTraits) -> PromptPlan:
        """Decide for `conversation`, whose messages are already in their stable form."""
        return self.planned(conversation, traits, self.wished(conversation, traits))

    def planned(self, conversation: Conversation, traits: TemplateTraits, wished: Wished) -> PromptPlan:
        """The same where it is known what the conversation's wishes mean."""
        facts = message_facts(conversation.messages)
        exact, bare = _selected(facts, traits, wished.history, wished.thinking, conversation.thinking.keep_turns)
        return PromptPlan(
            args=wished.args,
            thinking=wished.thinking,
            history=wished.history,
            exact=exact,
            bare=bare,
            notes=wished.notes,
        )

    def wished(self, conversation: Conversation, traits: TemplateTraits) -> Wished:
        """What the conversation's `thinking` and `template_args` mean; nothing else of it counts."""
        notes: list[Note] = []
        wish = conversation.thinking
        given = self._given(conversation, notes)
        args = {**self._switch(wish, traits, notes), **given}
        thinking = _is_on(args, wish, traits)
        history = self._history(wish, traits, thinking)
        if history == "keep":
            args = {**traits.history_switch, **args}
        return Wished(args=args, thinking=thinking, history=history, notes=tuple(notes))

    def _switch(self, wish: Thinking, traits: TemplateTraits, notes: list[Note]) -> dict[str, Any]:
        if self.known is None:
            return _probed(wish, traits, notes, effort=wish.effort)
        by_effort = wish.effort is not None and bool(self.known(Thinking(effort=wish.effort)))
        probed = _probed(wish, traits, notes, effort=None if by_effort else wish.effort)
        return {**probed, **self.known(wish)}

    def _given(self, conversation: Conversation, notes: list[Note]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, value in conversation.template_args.items():
            if name in self.allowed:
                given[name] = value
            else:
                notes.append(noted("template.argument_refused", name))
        return given

    def _history(self, wish: Thinking, traits: TemplateTraits, thinking: bool) -> HistoryThinking:
        if wish.history is not None:
            return wish.history
        if wish.keep_turns is not None:
            return "keep"
        if self.history != "auto":
            return self.history
        keeps = bool(traits.history_switch) or _keeps(traits)
        return "keep" if thinking and keeps else "model"


def _probed(wish: Thinking, traits: TemplateTraits, notes: list[Note], *, effort: str | None) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if wish.mode == "off":
        if traits.thinking_off is None:
            if traits.thinks:
                notes.append(noted("thinking.cannot_disable"))
        else:
            args.update(traits.thinking_off)
        return args
    if wish.mode is not None:
        args.update(traits.thinking_on)
        if wish.mode == "adaptive" and args.get("thinking_mode") == "enabled":
            args["thinking_mode"] = "adaptive"
        if "thinking_budget" in args and wish.budget is not None:
            args["thinking_budget"] = wish.budget
    if effort is not None and traits.effort_argument is not None:
        value = _nearest(effort, traits.effort_values)
        if value is not None:
            args[traits.effort_argument] = value
    elif effort is not None:
        notes.append(noted("thinking.effort_ignored"))
    return args


def _nearest(effort: str, values: Sequence[str]) -> str | None:
    """The value a template knows that comes closest to the effort asked for; the lower one when in doubt."""
    if effort in values:
        return effort
    return None if effort == "none" else nearest_effort(effort, [value for value in values if value != "none"])


def _is_on(args: dict[str, Any], wish: Thinking, traits: TemplateTraits) -> bool:
    if traits.thinking_off is not None:
        if all(args.get(name) == value for name, value in traits.thinking_off.items()):
            return False
        if any(name in args for name in traits.thinking_off):
            return True
    if wish.mode is not None:
        return wish.mode != "off"
    return traits.thinking_default


def _selected(
    facts: MessageFacts,
    traits: TemplateTraits,
    history: HistoryThinking,
    thinking: bool,
    keep_turns: int | None,
) -> tuple[frozenset[int], frozenset[int]]:
    turns, thoughtful = facts.answers, facts.thoughtful
    settled = not traits.thinks or _keeps(traits)
    if history == "model" and settled and not traits.tools_follow_last_user:
        return frozenset(turns), frozenset()
    running = frozenset(turns[bisect_left(turns, facts.loop) :])
    past = thoughtful[: bisect_left(thoughtful, facts.loop)]
    if history == "keep":
        dropped = thoughtful[: max(len(thoughtful) - keep_turns, 0)] if keep_turns is not None else ()
        bare = frozenset(dropped) - running
        return frozenset(turns) - bare, bare
    if history == "drop":
        return running, frozenset(past)
    if not thinking and not traits.tools_follow_last_user:
        # Turns without thoughts lose nothing by the template's rule, so their exact form can stay.
        return frozenset(turns).difference(past), frozenset()
    return running, frozenset()


def _keeps(traits: TemplateTraits) -> bool:
    """Whether thoughts stay when the next user message comes; some templates never show those of plain answers."""
    return "tool_before" in traits.kept
