"""Whether a turn comes back exactly by itself: known at its end, before the client has sent anything back.

Promise: `restores` is true only where writing the turn again from what clients return gives the very ids that the model
wrote, whatever the known habits of clients do to its arguments, and whatever ids its calls come back under. Long turns
are not tried; the answer is then no.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import msgspec

from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.replay.rewriting import in_template_order, rewritten_on
from turnwire.prompts.replay.splicer import Openings, TemplateSplicer
from turnwire.prompts.replay.written_calls import WrittenCalls
from turnwire.prompts.templates.control_text import ControlText
from turnwire.prompts.templates.probing.returned_turns import Situation, reads_as_written, situation_of
from turnwire.prompts.templates.probing.samples import mark
from turnwire.prompts.templates.template import Renderer
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Block, Message, TextBlock, Tool, ToolCallBlock

__all__ = ["Foresight", "PlainAnswers", "survives_clients"]

_MOST_CHARS = 16_384
_SAFE = 2**53
_MOST_SWITCHES = 64
_MOST_SITUATIONS = 512
# Nothing in it that a template could take for markup, and everything that one could trim, escape or join.
_SAMPLE = f'{mark("Body")} "said" \\ &amp;\n\n  and {mark("Body")}'
_encode = msgspec.msgpack.Encoder().encode
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class PlainAnswers:
    """How one template writes answers that are text alone, and plain calls, and after what it writes turns otherwise;
    found out once for each set of its switches, and so are the ids of the texts that stand around answers. May be
    shared by threads."""

    def __init__(self, tokenizer: Tokenizer, end_tokens: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._after_thought: dict[bytes, str | None] = {}
        self._as_said: dict[bytes, bool] = {}
        self._returns: dict[tuple[bytes, Situation, str], bool] = {}
        self._ids: dict[str, list[int]] = {}
        spelled = [(token, tokenizer.encode(token)) for token in end_tokens]
        self.ends = {ids[0]: token for token, ids in spelled if len(ids) == 1}
        """The tokens that end a turn, by their ids."""
        self.openings = Openings()
        self.calls = WrittenCalls()

    def ids_of(self, around: str) -> list[int]:
        """The ids of what a template writes before or after an answer."""
        return _found(self._ids, around, lambda: self._tokenizer.encode(around))

    def after_thought(
        self, splicer: Callable[[], TemplateSplicer], traits: TemplateTraits, args: dict[str, Any]
    ) -> str | None:
        """What comes between a thought and the text after it, None where that cannot be written."""

        def asked() -> str | None:
            said = rewritten_on(splicer(), traits, [TextBlock(text=_SAMPLE)], args, after_thought=True)
            return said[: -len(_SAMPLE)] if said is not None and said.endswith(_SAMPLE) else None

        return _found(self._after_thought, _encode(sorted(args.items())), asked)

    def as_said(self, splicer: Callable[[], TemplateSplicer], args: dict[str, Any]) -> bool:
        """Whether an answer is written just as it was said."""

        def asked() -> bool:
            message = Message(role="assistant", blocks=(TextBlock(text=_SAMPLE),))
            return splicer().rewritten(message, args) == _SAMPLE

        return _found(self._as_said, _encode(sorted(args.items())), asked)

    def returns(
        self, template: Renderer, traits: TemplateTraits, situation: Situation, args: dict[str, Any], header: str
    ) -> bool:
        """Whether turns in this situation read in history as they were written after their prompt."""

        def asked() -> bool:
            return reads_as_written(template, traits, situation, args, header)

        return _found(self._returns, (_encode(sorted(args.items())), situation, header), asked, most=_MOST_SITUATIONS)


def _found(known: dict[_Key, _Value], key: _Key, ask: Callable[[], _Value], *, most: int = _MOST_SWITCHES) -> _Value:
    """What is known under the key, or else found out and kept; another thread may drop it at any time."""
    try:
        return known[key]
    except KeyError:
        value = ask()
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value


class Foresight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the template will make of the turn that one prompt asks for. `messages` are the conversation's, `tail` is
    the generation header, `args` are the switches the turn is written with."""

    template: Renderer
    traits: TemplateTraits
    tokenizer: Tokenizer
    control: ControlText
    messages: Sequence[Message]
    tools: Sequence[Tool]
    args: dict[str, Any]
    end_tokens: tuple[str, ...]
    tail: str
    plain: PlainAnswers

    def restores(self, ids: Sequence[int], kept: int, rest: Sequence[Block]) -> bool:
        """Whether the client's words for `rest`, written after the first `kept` ids, give all of `ids` again. `kept` is
        0 where nothing of the turn is carried in seals; `rest` is then all of it."""
        rest = _unidentified(rest)
        if not kept and not self._returns(rest):
            return False
        if not kept and _is_running_text(rest) and self.plain.as_said(self._splicer, self.args):
            text, turn_end = rest[0].text, self.traits.turn_ends.to_user or ""
            return not self.control.in_text(text) and self._gives(self._without_end(ids, turn_end), text, turn_end)
        message = Message(role="assistant", blocks=tuple(rest))
        if sum(map(_size, rest)) > _MOST_CHARS or self.control.in_message(message):
            return False
        calls = [block for block in rest if isinstance(block, ToolCallBlock)]
        if not all(self._survives(call) for call in calls):
            return False
        turn_ends = self.traits.turn_ends
        turn_end = (turn_ends.to_tool if calls else turn_ends.to_user) or ""
        written = self._without_end(ids, turn_end)
        if kept:
            more = self._after_thought(rest, calls)
            return more is not None and written[kept:] == self.tokenizer.encode(more)
        whole = self._written(rest, calls, kept=False) if in_template_order(rest) else None
        return whole is not None and self._gives(written, whole, turn_end)

    def _returns(self, rest: Sequence[Block]) -> bool:
        """Whether a turn that is not spliced in reads behind this prompt as it does behind a bare question."""
        situation = situation_of(self.messages, self.tools, rest)
        return situation is not None and self.plain.returns(self.template, self.traits, situation, self.args, self.tail)

    def _after_thought(self, rest: Sequence[Block], calls: Sequence[ToolCallBlock]) -> str | None:
        """What the template writes of `rest` after a thought's closing mark."""
        if not rest or not all(isinstance(block, TextBlock) for block in rest):
            return self._written(rest, calls, kept=True)
        gap = self.plain.after_thought(self._splicer, self.traits, self.args)
        return None if gap is None else gap + Message(role="assistant", blocks=tuple(rest)).text

    def _written(self, rest: Sequence[Block], calls: Sequence[ToolCallBlock], *, kept: bool) -> str | None:
        """What the template writes of these blocks; `kept`: after a thought's closing mark."""

        def write(blocks: Sequence[Block]) -> str | None:
            if kept:
                return rewritten_on(self._splicer(calls), self.traits, blocks, self.args, after_thought=True)
            return self._splicer(calls).rewritten(Message(role="assistant", blocks=tuple(blocks)), self.args)

        # Ids that are counted depend on the calls before these.
        if not calls or self.traits.call_ids != "any":
            return write(rest)
        about = (kept, self.template.stamp, sorted(self.args.items()))
        return self.plain.calls.of(rest, self._called(calls), about, write)

    def _gives(self, written: list[int], text: str, turn_end: str) -> bool:
        """Whether what the template writes of a turn, between its header and what follows, has these ids."""
        if not turn_end or not self.tail:
            return False
        around = self.plain.ids_of
        return self.tokenizer.encode(self.tail + text + turn_end) == [*around(self.tail), *written, *around(turn_end)]

    def _splicer(self, calls: Sequence[ToolCallBlock] = ()) -> TemplateSplicer:
        """A splicer that shows no more than it must: neither the system text nor the tools that are not called. The
        calls of earlier turns matter only where the prompt numbers calls."""
        if not calls:
            return TemplateSplicer(
                self.template, self.traits, (), (), [], self.end_tokens, openings=self.plain.openings
            )
        called = self._called(calls)
        opening = 1 if self.messages and self.messages[0].role == "system" else 0
        earlier = self.messages[opening:] if self.traits.call_ids != "any" else ()
        return TemplateSplicer(
            self.template, self.traits, earlier, called, [], self.end_tokens, openings=self.plain.openings
        )

    def _called(self, calls: Sequence[ToolCallBlock]) -> list[Tool]:
        names = {call.name for call in calls}
        return [tool for tool in self.tools if tool.name in names]

    def _survives(self, call: ToolCallBlock) -> bool:
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None or call.kind != "function" or tool.kind != "function":
            return False
        return survives_clients(call.arguments, tool.schema, as_text=self.traits.arguments == "text")

    def _without_end(self, ids: Sequence[int], turn_end: str) -> list[int]:
        """The ids without the end token that the template writes as well."""
        written = list(ids)
        last = self.plain.ends.get(written[-1]) if written else None
        return written[:-1] if last is not None and turn_end.startswith(last) else written


def survives_clients(arguments: str, schema: Mapping[str, Any], *, as_text: bool) -> bool:
    """Whether every known client returns these arguments so that they render the same: they parse and write them again
    without blanks, put keys in the schema's order, add its defaults and drop nulls, convert values to the schema's
    types, strip blanks at line ends, and round large integers. `as_text`: the template shows the JSON as it came."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return False
    if as_text and arguments != json.dumps(value, separators=(",", ":"), ensure_ascii=False):
        return False
    if [key for key in properties if key in value] != list(value):
        return False
    for name, described in properties.items():
        known = described if isinstance(described, dict) else {}
        if name not in value:
            if "default" in known:
                return False
        elif not _unchanged(value[name]) or (isinstance(value[name], str) and known.get("type") != "string"):
            return False
    return True


def _unchanged(value: Any) -> bool:
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict | list):
            todo.extend(value.values() if isinstance(value, dict) else value)
        elif not _keeps(value):
            return False
    return True


def _keeps(value: Any) -> bool:
    """Whether clients leave a single value alone."""
    if isinstance(value, str):
        return all(line == line.rstrip() for line in value.split("\n"))
    if isinstance(value, float):
        return not value.is_integer()
    return value is not None and abs(value) <= _SAFE


def _is_running_text(blocks: Sequence[Block]) -> TypeGuard[Sequence[TextBlock]]:
    """Whether a message is one text, no long one, in which no template finds anything to trim or to take for markup."""
    if len(blocks) != 1 or not isinstance(blocks[0], TextBlock):
        return False
    text = blocks[0].text
    return len(text) <= _MOST_CHARS and text == text.strip() and not ("<" in text or "[" in text or "{" in text)


def _unidentified(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that say something. Calls come back under ids that nobody knows yet: theirs are such as no model
    writes, so that a template which shows them gives something else than was written."""
    return [
        msgspec.structs.replace(block, id=mark(f"Call{number}")) if isinstance(block, ToolCallBlock) else block
        for number, block in enumerate(blocks)
        if not isinstance(block, TextBlock) or block.text.strip()
    ]


def _size(block: Block) -> int:
    return len(block.text) if isinstance(block, TextBlock) else len(getattr(block, "arguments", ""))
