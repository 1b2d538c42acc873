"""Rendering a conversation around turns that are put in exactly.

Promise: the text between two exact turns is the template's own: its end of turn, its framing of results, its header of
the next turn. It depends only on what comes before it, so a prompt that grew keeps every earlier character.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.prompts.templates.messages import CallNames, calls_of, dress, dress_tools, questions_of
from turnwire.prompts.templates.probing.samples import mark, markers
from turnwire.prompts.templates.template import Renderer, TemplateFailure, TemplateMessage
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.tool_sets import tool_set
from turnwire.turns import Message, Note, Tool, ToolCallBlock, ToolResultBlock

__all__ = ["Openings", "TemplateSplicer", "Text", "UnknownTurnEnd"]

_STUB, _NEXT = mark("Stub"), mark("Next")
_OVERLAP = 256
_MOST_OPENINGS = 64
_LONGEST_OPENING = 65_536
_encode = msgspec.msgpack.Encoder().encode


class UnknownTurnEnd(Exception):
    """The end of a turn could not be found in what the template renders."""


class Text(msgspec.Struct, frozen=True, gc=False):
    """Rendered text; `tail` is its ending that only a generation header explains, None where nobody asked."""

    whole: str
    tail: str | None = None


class Openings:
    """What one template writes before a turn that answers a bare question, for the tools and switches asked about last.
    May be shared by threads."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def get(self, stamp: str, tools: Sequence[Tool], args: Mapping[str, Any]) -> str | None:
        """What it writes for these tools at the time of `stamp`, None where that is not known."""
        return self._known.get(_opening_key(stamp, tools, args))

    def put(self, stamp: str, tools: Sequence[Tool], args: Mapping[str, Any], opening: str) -> None:
        if len(opening) > _LONGEST_OPENING:
            return
        if len(self._known) >= _MOST_OPENINGS:
            self._known.clear()
        self._known[_opening_key(stamp, tools, args)] = opening

    def __len__(self) -> int:
        return len(self._known)


def _opening_key(stamp: str, tools: Sequence[Tool], args: Mapping[str, Any]) -> bytes:
    return _encode((stamp, tool_set(tools).digest(), sorted(args.items())))


class TemplateSplicer:
    """Writes the text of one conversation with one template. `messages` are in their stable form; `end_tokens` are the
    tokens with which the model may end a turn. Where they are known, `calls` are all calls of the messages, and
    `questions` the places of the user's messages that bring no results. `openings` are for messages without a system
    text."""

    def __init__(
        self,
        template: Renderer,
        traits: TemplateTraits,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        notes: list[Note],
        end_tokens: Sequence[str] = (),
        calls: Sequence[ToolCallBlock] | None = None,
        questions: Sequence[int] | None = None,
        openings: Openings | None = None,
    ) -> None:
        self._template = template
        self._end_tokens = tuple(token for token in end_tokens if token)
        self._traits = traits
        self._messages = messages
        self._tools = tools
        self._notes = notes
        self._questions = questions
        self._openings = openings
        self._names = CallNames(traits.call_ids, calls_of(messages) if calls is None else calls)

    @property
    def any_tool(self) -> str:
        """The name of a tool that the conversation offers, or of one that it might."""
        return self._tools[0].name if self._tools else "tool"

    def head(self, end: int, args: Mapping[str, Any]) -> Text:
        """The prompt for the turn at `end`, all of it by the template."""
        dressed = self._dressed(self._messages[:end])
        return self._rendered(dressed, self._dressed_tools(self._tools), args, True)

    def window(self, start: int, end: int, args: Mapping[str, Any]) -> Text:
        """The prompt for the turn at `end` as if the conversation began with the message at `start`."""
        opening = [message for message in self._messages[:1] if message.role == "system"]
        dressed = self._dressed([*opening, *self._messages[start:end]])
        return self._rendered(dressed, self._tools_for(dressed), args, True)

    def bridge(self, turn: int, end: int, output: str, args: Mapping[str, Any]) -> Text:
        """What is between the exact turn at `turn`, which reads `output`, and the turn at `end`."""
        following = self._messages[turn + 1 : end]
        results = [block for message in following[:1] for block in message.blocks if isinstance(block, ToolResultBlock)]
        if not self._traits.parallel_calls and len(results) > 1:
            text = self._one_by_one(turn, end, args)
        else:
            stub = self._stub(self._messages[turn])
            text = self._after_stub([*self._before(turn), stub, *self._dressed(following)], args)
        whole = _without_overlap(output, text.whole, self._end_tokens)
        return Text(whole, text.tail)

    def rewritten(self, message: Message, args: Mapping[str, Any]) -> str | None:
        """What the model would have written for `message` after its generation header, in the template's own words;
        None where the template's header and history do not meet."""
        calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        if calls and not self._traits.turn_ends.calls:
            return None
        system = [message for message in self._messages[:1] if message.role == "system"]
        before: list[TemplateMessage] = [*self._dressed(system), {"role": "user", "content": self._shaped("...")}]
        next_messages: list[TemplateMessage] = [{"role": "user", "content": self._shaped(_NEXT)}]
        if calls:
            next_messages = [
                {
                    "role": "tool",
                    "tool_call_id": self._names.call(call),
                    "name": call.name,
                    "content": self._shaped(_NEXT),
                }
                for call in calls
            ]
        turn_end = self._traits.turn_ends.to_tool if calls else self._traits.turn_ends.to_user
        dressed = [*before, *self._dressed([message])]
        tools = self._called(dressed)
        shown = self._dressed_tools(tools)
        openings = self._openings if not system else None
        try:
            start = openings.get(self._template.stamp, tools, args) if openings is not None else None
            if start is None:
                start = self._rendered(before, shown, args, False).whole
                if openings is not None:
                    openings.put(self._template.stamp, tools, args, start)
            whole = self._rendered([*dressed, *next_messages], shown, args, False).whole
        except TemplateFailure:
            return None
        if not whole.startswith(start) or _NEXT not in whole or not turn_end:
            return None
        said = whole[len(start) : whole.find(_NEXT, len(start))]
        at = said.rfind(turn_end)
        return said[:at] if at >= 0 else None

    # ------------------------------------------------------------------------------------------- rendering

    def _dressed(self, messages: Sequence[Message]) -> list[TemplateMessage]:
        return dress(messages, self._traits, self._names, self._notes)

    def _rendered(
        self, dressed: list[TemplateMessage], tools: list[dict[str, Any]], args: Mapping[str, Any], tail: bool
    ) -> Text:
        empty: list[dict[str, Any]] | None = [] if self._traits.tools_empty == "list" else None
        whole = self._template.render(dressed, tools=tools or empty, generation=True, args=args)
        known = (self._traits.tail_on, self._traits.tail_off or "", self._traits.tail)
        ending = max((text for text in known if whole.endswith(text)), key=len, default="")
        if ending:
            return Text(whole, ending)
        if not tail:
            return Text(whole)
        # A header other than the one after a plain user message, or none: only a rendering without one can tell.
        try:
            bare = self._template.render(dressed, tools=tools or empty, generation=False, args=args)
        except TemplateFailure:
            return Text(whole, "")
        return Text(whole, whole[len(bare) :] if whole.startswith(bare) else "")

    def _after_stub(self, dressed: list[TemplateMessage], args: Mapping[str, Any]) -> Text:
        """What the template writes after the stub's own text."""
        tools = [] if self._traits.tools_follow_last_user else self._tools_for(dressed)
        text = self._rendered(dressed, tools, args, True)
        at = text.whole.rfind(_STUB)
        if at < 0:
            raise UnknownTurnEnd("the turn does not show in the rendered conversation")
        rest = text.whole[at + len(_STUB) :]
        return Text(rest[self._turn_end_in(rest, dressed) :], text.tail)

    def _turn_end_in(self, rest: str, dressed: list[TemplateMessage]) -> int:
        """Where the stub's turn ends in the text after its mark."""
        turn_ends = self._traits.turn_ends
        if not any(_is_stub(message) and message.get("tool_calls") for message in dressed):
            return 0
        if rest.startswith(turn_ends.call_close):
            return len(turn_ends.call_close)
        for known in (turn_ends.to_tool, turn_ends.to_user):
            at = rest.find(known) if known else -1
            if at >= 0:
                return at
        raise UnknownTurnEnd("the end of a call is not where it was when the template was probed")

    # ------------------------------------------------------------------------------------ what is shown around

    def _stub(self, message: Message, only: int | None = None) -> TemplateMessage:
        """The exact turn's stand-in: the same calls by name and id, with a mark for arguments or for text."""
        calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        if not calls or not self._traits.turn_ends.calls:
            return {"role": "assistant", "content": self._shaped(_STUB)}
        if not self._traits.parallel_calls:
            calls = [calls[only or 0]]
        arguments: Any = f'{{"q": "{_STUB}"}}' if self._traits.arguments == "text" else {"q": _STUB}
        made = [
            {
                "id": self._names.call(call),
                "type": "function",
                "function": {"name": call.name, "arguments": arguments},
            }
            for call in calls
        ]
        return {"role": "assistant", "content": self._shaped(""), "tool_calls": made}

    def _shaped(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self._traits.content == "parts" else text

    def _before(self, turn: int) -> list[TemplateMessage]:
        """What the template has to see before the turn for what follows it to read the same."""
        messages = self._messages
        if not self._traits.turn_ends.local:
            dressed: list[TemplateMessage] = []
            for message in messages[:turn]:
                shown_as = [_unmarked(self._stub(message))] if message.role == "assistant" else self._dressed([message])
                dressed.extend(shown_as)
            return dressed
        opening = [message for message in messages[:1] if message.role == "system"]
        questions = questions_of(messages) if self._questions is None else self._questions
        before = bisect_left(questions, turn)
        if before:
            return self._dressed([*opening, messages[questions[before - 1]]])
        return [*self._dressed(opening), {"role": "user", "content": self._shaped("...")}]

    def _tools_for(self, dressed: Sequence[TemplateMessage]) -> list[dict[str, Any]]:
        return self._dressed_tools(self._called(dressed))

    def _called(self, dressed: Sequence[TemplateMessage]) -> Sequence[Tool]:
        """The tools that the shown turns call; the section they are listed in is not part of what is kept."""
        called = {call["function"]["name"] for message in dressed for call in message.get("tool_calls") or ()}
        shown = [tool for tool in self._tools if tool.name in called] if called else []
        return shown or self._tools[:1]

    def _dressed_tools(self, tools: Sequence[Tool]) -> list[dict[str, Any]]:
        return dress_tools(tools, simple=self._traits.simple_schemas)

    def _one_by_one(self, turn: int, end: int, args: Mapping[str, Any]) -> Text:
        """Results for a template that knows one call per turn: each is shown after its own call."""
        message = self._messages[turn]
        calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        first, *following = self._messages[turn + 1 : end]
        results = [block for block in first.blocks if isinstance(block, ToolResultBlock)]
        rest = tuple(block for block in first.blocks if not isinstance(block, ToolResultBlock))
        before = self._before(turn)
        pieces: list[str] = []
        ending = ""
        for position, result in enumerate(results):
            only = next((at for at, call in enumerate(calls) if call.id == result.call_id), 0)
            stub = self._stub(message, only)
            last = position == len(results) - 1
            shown: list[Message] = [Message(role="user", blocks=(result,))]
            if last:
                shown += [Message(role="user", blocks=rest)] if rest else []
                shown += following
            text = self._after_stub([*before, stub, *self._dressed(shown)], args)
            closing = self._turn_end([*before, stub], args)
            start = len(closing) if position and text.whole.startswith(closing) else 0
            ending = text.tail or ""
            stop = len(text.whole) if last else len(text.whole) - len(ending)
            pieces.append(text.whole[start:stop])
        return Text("".join(pieces), ending)

    def _turn_end(self, dressed: list[TemplateMessage], args: Mapping[str, Any]) -> str:
        """The end-of-turn text after a turn that is the last of the conversation."""
        try:
            whole = self._template.render(dressed, tools=self._tools_for(dressed), generation=False, args=args)
        except TemplateFailure:
            return ""
        rest = whole[whole.rfind(_STUB) + len(_STUB) :]
        close = self._traits.turn_ends.call_close
        return rest[len(close) :] if rest.startswith(close) else ""


def _is_stub(message: TemplateMessage) -> bool:
    return any(_STUB in str(call["function"]["arguments"]) for call in message.get("tool_calls") or ())


def _unmarked(stub: TemplateMessage) -> TemplateMessage:
    """A stub that stands for a turn other than the one looked for."""
    if not stub.get("tool_calls"):
        return {**stub, "content": "..." if isinstance(stub["content"], str) else [{"type": "text", "text": "..."}]}
    calls = [
        {**call, "function": {**call["function"], "arguments": _emptied(call["function"]["arguments"])}}
        for call in stub["tool_calls"]
    ]
    return {**stub, "tool_calls": calls}


def _emptied(arguments: Any) -> Any:
    return arguments.replace(_STUB, "...") if isinstance(arguments, str) else {"q": "..."}


def _without_overlap(output: str, bridge: str, end_tokens: tuple[str, ...]) -> str:
    """`bridge` without what `output` already ends with: an end-of-turn token, or the blanks before one. A turn that the
    model ended with another end token than the template writes is not ended twice."""
    own = next((token for token in end_tokens if bridge.startswith(token)), "")
    sizes = {len(own), *(end for _, end in markers(bridge[:_OVERLAP]))} - {0}
    for size in sorted(sizes, reverse=True):
        if output.endswith(bridge[:size]):
            return bridge[size:]
    if end_tokens and output.endswith(end_tokens):
        return bridge[len(own) :]
    blanks = len(bridge) - len(bridge.lstrip())
    if blanks and output.endswith(bridge[:blanks]):
        return bridge[blanks:]
    return bridge
