"""Learning where an assistant turn's own text ends in rendered history.

Promise: `learn_turn_ends` finds, by rendering marked turns, the text a template always writes after a turn, so that an
exact turn can be put in place of a rendered one; what it cannot find it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwire.prompts.templates.probing.samples import (
    SampleTurns,
    TrialRenderer,
    after,
    between,
    common_prefix,
    common_suffix,
    mark,
    marker_start,
    said_by_user,
    tool,
)
from turnwire.prompts.templates.template import TemplateMessage
from turnwire.prompts.templates.traits import TurnEnds

__all__ = ["learn_turn_ends"]

_USER, _NEXT, _BODY, _RESULT = mark("user"), mark("next"), mark("body"), mark("result")


def learn_turn_ends(renderer: TrialRenderer, turns: SampleTurns, *, tools: bool, args: Mapping[str, Any]) -> TurnEnds:
    """What follows an assistant's turn in the template of `renderer`."""
    names = ("alpha", "beta")
    user, after_turn = said_by_user(_USER), said_by_user(_NEXT)
    offered = [tool("alpha"), tool("beta")] if tools else None
    plain: TemplateMessage = {"role": "assistant", "content": _BODY}

    def show(*messages: TemplateMessage, generation: bool = True) -> str | None:
        return renderer.show(messages, tools=offered, generation=generation, args=args)

    def close_of(number: int) -> str | None:
        call = turns.call(number, names[number], _BODY)
        found = _close(between(show(user, call, after_turn), _BODY, _NEXT), to_user)
        if found is None:
            last = after(show(user, call, generation=False), _BODY)
            found = _close(last, after(show(user, plain, generation=False), _BODY))
        return found

    def bridge_of(number: int) -> str | None:
        """What is between the end of a turn with a call and its result."""
        step = turns.call(number, names[number], _BODY), turns.result(number, names[number], _RESULT)
        close, whole = close_of(number), between(show(user, *step), _BODY, _RESULT)
        if close is None or whole is None:
            return None
        return whole[len(common_prefix(whole, close)) :]

    to_user = between(show(user, plain, after_turn), _BODY, _NEXT)
    one, two = bridge_of(0), bridge_of(1)
    calls = one is not None
    if not calls:
        # The template writes no calls of its own; they are part of the turn's text.
        one = between(show(user, plain, turns.result(0, "alpha", _RESULT)), _BODY, _RESULT)
        two = between(show(user, plain, turns.result(1, "beta", _RESULT)), _BODY, _RESULT)
    return TurnEnds(
        calls=calls,
        call_close=(close_of(0) or "") if calls else "",
        to_tool=common_prefix(one, two) if one is not None and two is not None else one,
        to_user=to_user,
        local=_local(show, turns, plain),
    )


def _close(after_call: str | None, after_plain: str | None) -> str | None:
    """What a call writes after its last argument, by comparison of a turn with calls and a plain one."""
    if after_call is None or after_plain is None:
        return None
    shared = common_suffix(after_call, after_plain)
    close = after_call[: len(after_call) - len(shared)]
    if len(shared) < len(after_plain):
        # Plain turns end with a mark of their own; so do turns with calls, and theirs is the last one here.
        start = marker_start(close)
        if start is not None:
            return close[:start]
    return close


def _local(show: Callable[..., str | None], turns: SampleTurns, plain: TemplateMessage) -> bool:
    """Whether what follows a second step reads the same when the first one is not there."""
    user, after_turn = said_by_user(_USER), said_by_user(_NEXT)
    first = [turns.call(0, "alpha", "one"), turns.result(0, "alpha", "two")]
    second = [turns.call(1, "beta", _BODY), turns.result(1, "beta", _RESULT)]
    if after(show(user, *first, *second), _BODY) != after(show(user, *second), _BODY):
        return False
    earlier: list[TemplateMessage] = [said_by_user("first"), {"role": "assistant", "content": "answer"}]
    return after(show(*earlier, user, plain, after_turn), _BODY) == after(show(user, plain, after_turn), _BODY)
