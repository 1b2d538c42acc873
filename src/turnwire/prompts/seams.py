"""Learning where an assistant turn's own text ends in rendered history.

Promise: `learn_seams` finds, by rendering marked turns, the text a template always writes after a turn, so that an
exact turn can be put in place of a rendered one; what it cannot find it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwire.prompts.scenes import (
    Stage,
    after,
    between,
    call_turn,
    common_prefix,
    common_suffix,
    mark,
    marker_start,
    tool,
)
from turnwire.prompts.template import TemplateMessage
from turnwire.prompts.traits import Seams

__all__ = ["learn_seams"]

_USER, _NEXT, _BODY, _RESULT = mark("user"), mark("next"), mark("body"), mark("result")


class _Actors:
    """Messages of the scenes, in the argument form and with the ids the template accepts."""

    def __init__(self, arguments: str, ids: tuple[str, str]) -> None:
        self._arguments = arguments
        self.ids = ids

    def calls(self, call_id: str, name: str, body: str = _BODY) -> TemplateMessage:
        return call_turn((call_id, name, self.arguments(body)))

    def arguments(self, body: str) -> Any:
        return f'{{"q": "{body}"}}' if self._arguments == "text" else {"q": body}

    @staticmethod
    def result(call_id: str, name: str, content: str = _RESULT) -> TemplateMessage:
        return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def _user(text: str = _USER) -> TemplateMessage:
    return {"role": "user", "content": text}


def learn_seams(stage: Stage, *, arguments: str, ids: tuple[str, str], tools: bool, args: Mapping[str, Any]) -> Seams:
    """The seams of the template on `stage`. `ids` are two call ids it accepts."""
    actors = _Actors(arguments, ids)
    offered = [tool("alpha"), tool("beta")] if tools else None
    plain: TemplateMessage = {"role": "assistant", "content": _BODY}

    def show(*messages: TemplateMessage, generation: bool = True) -> str | None:
        return stage.show(messages, tools=offered, generation=generation, args=args)

    def close_of(call_id: str, name: str) -> str | None:
        call = actors.calls(call_id, name)
        found = _close(between(show(_user(), call, _user(_NEXT)), _BODY, _NEXT), to_user)
        if found is None:
            last = after(show(_user(), call, generation=False), _BODY)
            found = _close(last, after(show(_user(), plain, generation=False), _BODY))
        return found

    def bridge_of(call_id: str, name: str) -> str | None:
        """What stands between the end of a turn with a call and its result."""
        call, result = actors.calls(call_id, name), actors.result(call_id, name)
        close, whole = close_of(call_id, name), between(show(_user(), call, result), _BODY, _RESULT)
        if close is None or whole is None:
            return None
        return whole[len(common_prefix(whole, close)) :]

    to_user = between(show(_user(), plain, _user(_NEXT)), _BODY, _NEXT)
    one, two = bridge_of(ids[0], "alpha"), bridge_of(ids[1], "beta")
    calls = one is not None
    if not calls:
        # The template writes no calls of its own; they are part of the turn's text.
        one = between(show(_user(), plain, actors.result(ids[0], "alpha")), _BODY, _RESULT)
        two = between(show(_user(), plain, actors.result(ids[1], "beta")), _BODY, _RESULT)
    return Seams(
        calls=calls,
        call_close=(close_of(ids[0], "alpha") or "") if calls else "",
        to_tool=common_prefix(one, two) if one is not None and two is not None else one,
        to_user=to_user,
        local=_local(show, actors, plain),
    )


def _close(after_call: str | None, after_plain: str | None) -> str | None:
    """What a call writes behind its last argument, by comparison of a turn with calls and a plain one."""
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


def _local(show: Any, actors: _Actors, plain: TemplateMessage) -> bool:
    """Whether what follows a second step reads the same when the first one is not there."""
    first, second = actors.ids
    step = [actors.calls(second, "beta"), actors.result(second, "beta")]
    long = after(show(_user(), actors.calls(first, "alpha", "one"), actors.result(first, "alpha", "two"), *step), _BODY)
    short = after(show(_user(), *step), _BODY)
    if long != short:
        return False
    earlier: list[TemplateMessage] = [_user("first"), {"role": "assistant", "content": "answer"}]
    return bool(
        after(show(*earlier, _user(), plain, _user(_NEXT)), _BODY) == after(show(_user(), plain, _user(_NEXT)), _BODY)
    )
