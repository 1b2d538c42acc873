"""Whether a turn reads the same in history as it was written after its prompt, by trying it on a sample.

Promise: `reads_as_written` is true only where the template, shown a small conversation of the same form that went on,
wrote what comes before the turn as in the prompt for it, with the generation header that the turn was written after,
and of the turn itself what it writes of one that answers a bare question; and wrote it so again when the conversation
went on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.prompts.templates.messages import CallNames, calls_of, dress, dress_tools
from turnwire.prompts.templates.probing.samples import mark
from turnwire.prompts.templates.template import Renderer, TemplateFailure
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Block, Message, Role, TextBlock, Tool, ToolCallBlock, ToolResultBlock

__all__ = ["Situation", "reads_as_written", "situation_of"]

_NEXT = mark("Next")
_FEW = 2  # from here on more of a kind make no other form
_SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
_TOOLS = tuple([Tool(name=f"tool_{number}", description="Does things.", schema=_SCHEMA) for number in range(_FEW)])


class Situation(msgspec.Struct, frozen=True, gc=False):
    """The form of a turn and of the conversation before it. `system`: it opens with a system text. `tools`: it offers
    some. `answered`: the model said something before; `called`: it called a tool. The turn follows `results`, and words
    in the roles of `asked` behind them; it holds `text` and `calls`. More than two of a kind count as two."""

    system: bool
    tools: bool
    answered: bool
    called: bool
    results: int
    asked: tuple[Role, ...]
    text: bool
    calls: int


def situation_of(messages: Sequence[Message], tools: Sequence[Tool], turn: Sequence[Block]) -> Situation | None:
    """The situation of the `turn` that follows `messages`; None of one that says nothing, or follows neither words nor
    results, or results that came behind words."""
    system = bool(messages) and messages[0].role == "system"
    asked: list[Role] = []
    results, place = 0, len(messages)
    while place > system and messages[place - 1].role != "assistant":
        place -= 1
        brought = sum([type(block) is ToolResultBlock for block in messages[place].blocks])
        words = not brought or brought < len(messages[place].blocks)
        if words and results:
            return None
        results += brought
        if words:
            asked.append(messages[place].role)
    if not turn or not (asked or results):
        return None
    calls = sum([type(block) is ToolCallBlock for block in turn])
    return Situation(
        system=system,
        tools=bool(tools),
        answered=place > system,
        # To a turn without calls it makes no difference; one with calls is the last that looks this far back.
        called=results > 0 or (calls > 0 and any(_calls(messages[at]) for at in range(place - 1, -1, -1))),
        results=min(results, _FEW),
        asked=tuple(reversed(asked[:_FEW])),
        text=TextBlock in map(type, turn),
        calls=min(calls, _FEW),
    )


def reads_as_written(
    template: Renderer, traits: TemplateTraits, situation: Situation, args: Mapping[str, Any], header: str
) -> bool:
    """Whether a turn in this situation, which was written after this `header`, can be written again from its words;
    `args` are the template's switches. Where something that was said makes the header another one, it cannot."""
    if situation.calls > 1 and not traits.parallel_calls:
        return False  # they are written together, and each is read with its own result
    before = _conversation(situation)
    turn = _model(mark("Said") if situation.text else "", _made("now", situation.calls))
    trial = _Trial(template, traits, args, CallNames(traits.call_ids, calls_of(before)))
    answers = [turn, _user(_results(calls_of([turn]), _NEXT), "" if situation.calls else _NEXT)]
    alone = trial.written([_user((), "...")], answers, _TOOLS[: situation.calls])
    # Where the tools stand before the last question they move with it, and what follows them is read anew by then.
    moves = traits.tools_follow_last_user
    offered = _TOOLS if situation.tools and (situation.calls or not moves) else ()
    later = [] if moves else [[*answers, _model("Answer."), _user((), "Question.")]]
    there = [trial.written(before, after, offered, header) for after in (answers, *later)]
    return alone is not None and all(alone == written for written in there)


class _Trial(msgspec.Struct, frozen=True):
    """A template, its switches, and the ids that calls go by."""

    template: Renderer
    traits: TemplateTraits
    args: Mapping[str, Any]
    names: CallNames

    def written(
        self, before: Sequence[Message], after: Sequence[Message], tools: Sequence[Tool], header: str = ""
    ) -> str | None:
        """What is written of the turn with which `after` begins, up to its end, behind the prompt for it; None where
        that prompt does not end with the header, or is written otherwise by then."""
        ends = self.traits.turn_ends
        turn_end = ends.to_tool if calls_of(after[:1]) else ends.to_user
        try:
            prompt, whole = self._shown(before, tools), self._shown([*before, *after], tools)
        except TemplateFailure:
            return None
        if not turn_end or not prompt.endswith(header) or not whole.startswith(prompt):
            return None
        written, found, _ = whole[len(prompt) :].partition(_NEXT)
        at = written.rfind(turn_end) if found else -1
        return written[:at] if at >= 0 else None

    def _shown(self, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        traits = self.traits
        dressed = dress(messages, traits, self.names, [])
        offered = dress_tools(tools, simple=traits.simple_schemas)
        empty: list[dict[str, Any]] | None = [] if traits.tools_empty == "list" else None
        return self.template.render(dressed, tools=offered or empty, args=self.args)


def _conversation(situation: Situation) -> list[Message]:
    """A small conversation of this form, up to the turn."""
    messages = [Message(role="system", blocks=(TextBlock(text="Top."),))] if situation.system else []
    if situation.called:
        calls = _made("before", max(situation.results, 1))
        messages += [_user((), "First."), _model("", calls), _user(_results(calls, "Found."))]
    elif situation.answered:
        messages.append(_user((), "First."))
    if situation.answered and not situation.results:
        messages.append(_model("Answer."))
    for role in situation.asked:
        words = TextBlock(text="More.")
        last = messages[-1] if messages else None
        if role == "user" and last is not None and type(last.blocks[0]) is ToolResultBlock:
            messages[-1] = Message(role="user", blocks=(*last.blocks, words))
        else:
            messages.append(Message(role=role, blocks=(words,)))
    return messages


def _made(when: str, count: int) -> list[ToolCallBlock]:
    """Calls of the first tools, one each."""
    return [
        ToolCallBlock(id=mark(f"{when}{number}"), name=tool.name, arguments=f'{{"q":"{mark(when)}"}}')
        for number, tool in enumerate(_TOOLS[:count])
    ]


def _model(text: str, calls: Sequence[ToolCallBlock] = ()) -> Message:
    return Message(role="assistant", blocks=(*([TextBlock(text=text)] if text else ()), *calls))


def _results(calls: Sequence[ToolCallBlock], text: str) -> list[ToolResultBlock]:
    return [ToolResultBlock(call_id=call.id, content=(TextBlock(text=text),)) for call in calls]


def _user(results: Sequence[ToolResultBlock], text: str = "") -> Message:
    return Message(role="user", blocks=(*results, *([TextBlock(text=text)] if text else ())))


def _calls(message: Message) -> bool:
    return message.role == "assistant" and ToolCallBlock in map(type, message.blocks)
