"""From a conversation to prompt tokens.

Promise: `build` is a function of the conversation and of what can be recalled. The prompt of turn N+1 starts with the
prompt and the output of turn N, token for token, wherever the policy wants that turn exact and it can be recalled;
where not, a Note says so. What a prompt shares with an earlier one is neither rendered nor tokenized again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Literal

import msgspec

from turnwire.prompts.notes import noted
from turnwire.prompts.policy import Plan, ReplayPolicy
from turnwire.prompts.prompt import Prompt, Recall, RecalledTurn, Section, Tokenizer
from turnwire.prompts.recall.history import History
from turnwire.prompts.replay.foresight import Foresight
from turnwire.prompts.replay.rewriting import in_template_order, rewritten_in_order, rewritten_on
from turnwire.prompts.replay.sections import labelled
from turnwire.prompts.replay.splicer import TemplateSplicer, Text, UnknownSeam
from turnwire.prompts.replay.tokenized_text import TokenizedText, TokenizedTextCache, tokenized
from turnwire.prompts.stability import StabilityOptions, stabilise
from turnwire.prompts.templates.control_text import ControlText, Marks
from turnwire.prompts.templates.probing.probe import probe
from turnwire.prompts.templates.template import Renderer, TemplateFailure
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Conversation, Message, Note, ReasoningBlock, TextBlock, Tool

__all__ = ["PromptBuilder"]

_encode = msgspec.msgpack.Encoder().encode
_THOUGHT_MARKS = ("<think>", "</think>")  # those that templates read out of an assistant's text
_ENDING = 24  # tokens of an output that are looked at for an end-of-turn mark


class PromptBuilder:
    """Builds prompts for one model: its template and tokenizer, what probing showed of the template, the operator's
    replay policy and stability options, and the tokens that may end a turn (by default those the template names).
    `content_control` says what becomes of content that spells a control token: it stays `text`, the conversation is
    `refuse`d, or the token is let through (`allow`). Several threads may use one. A template that does not show what
    the user says raises TemplateFailure."""

    def __init__(
        self,
        template: Renderer,
        tokenizer: Tokenizer,
        *,
        traits: TemplateTraits | None = None,
        policy: ReplayPolicy | None = None,
        stability: StabilityOptions | None = None,
        memory: TokenizedTextCache | None = None,
        end_tokens: Sequence[str] | None = None,
        content_control: Literal["text", "refuse", "allow"] = "text",
    ) -> None:
        self.template = template
        self.tokenizer = tokenizer
        self.traits = traits if traits is not None else probe(template)
        if self.traits.blank:
            raise TemplateFailure("blank", "the chat template does not show what the user says")
        self.policy = policy or ReplayPolicy()
        self.stability = stability or StabilityOptions()
        self.memory = memory or TokenizedTextCache()
        self.end_tokens = tuple(end_tokens if end_tokens is not None else template.end_tokens)
        self.content_control = content_control
        self.control = ControlText(tokenizer.control_tokens)

    def build(self, conversation: Conversation, recall: Recall | None = None) -> Prompt:
        """The prompt for the conversation's next assistant turn; a conversation that ends with assistant text is
        continued from there. A template that refuses the conversation raises TemplateFailure."""
        stable, notes = stabilise(
            conversation,
            self.stability,
            mid_system=self.traits.mid_system is not None,
            system=self.traits.system,
            empty_system=self.traits.empty_system,
        )
        begun = _begun(stable.messages)
        if begun is not None:
            stable = msgspec.structs.replace(stable, messages=stable.messages[:-1])
        plan = self.policy.plan(stable, self.traits)
        notes.extend(plan.notes)
        messages = _without_thoughts(stable.messages, plan.bare)
        shown = self._shown(messages, stable.tools, plan, begun)
        draft = _Draft(self, messages, stable.tools, shown, plan, notes)
        turns = draft.exact_turns(recall)
        try:
            return draft.prompt(turns)
        except (UnknownSeam, TemplateFailure) as error:
            if not turns:
                raise
            notes.append(noted("replay.not_spliced", error))
            return draft.prompt({})

    def _shown(self, messages: Sequence[Message], tools: Sequence[Tool], plan: Plan, begun: str | None) -> _Shown:
        """What the template is given: the conversation, with marks wherever its content could become control."""
        control = self.control
        found = self.content_control != "allow" and (
            any(map(control.in_message, messages))
            or any(map(control.in_tool, tools))
            or control.in_value(plan.args)
            or (begun is not None and control.in_text(begun))
        )
        if not found:
            return _Shown(messages, tools, plan.args, begun, None)
        if self.content_control == "refuse":
            raise TemplateFailure(
                "control", "content spells a control token of the model, and the operator allows none"
            )
        marks = control.marks(messages, tools, [plan.args, begun])
        if marks is None:
            raise TemplateFailure("control", "content spells control tokens and uses every Unicode noncharacter")
        kept = _THOUGHT_MARKS if self.traits.strips_thoughts else ()
        marked = tuple(marks.message(message, kept if _tells_thoughts(message) else ()) for message in messages)
        if begun is not None:
            begun = _continued(begun, marks)
        return _Shown(marked, tuple(map(marks.tool, tools)), marks.value(plan.args), begun, marks)


class _Shown(msgspec.Struct, frozen=True):
    """A conversation as the template gets it."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    args: dict[str, Any]
    begun: str | None
    marks: Marks | None


class _SplicedTurn(msgspec.Struct, frozen=True):
    """A turn that is put in as tokens. `exact` tells what the model wrote from what was written for it; `thinking` is
    None where the header it was written after is not known."""

    ids: Sequence[int]
    exact: bool
    thinking: bool | None


class _Draft:
    """One prompt in the making."""

    def __init__(
        self,
        builder: PromptBuilder,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        shown: _Shown,
        plan: Plan,
        notes: list[Note],
    ) -> None:
        self._builder = builder
        self._traits = builder.traits
        self._messages = messages
        self._shown = shown
        self._tools = tools
        self._plan = plan
        self._notes = notes
        rendered = [_without_carriers(message) for message in shown.messages]
        self._splicer = TemplateSplicer(
            builder.template, builder.traits, rendered, shown.tools, notes, builder.end_tokens
        )
        digests = [_digest(_encode(message)) for message in self._messages]
        self._chain = _chained(digests)
        self._history = History(self._messages, digests, tools)
        self._frame = _digest(_encode(tools), builder.template.stamp.encode())

    # ------------------------------------------------------------------------------------------ turns as tokens

    def exact_turns(self, recall: Recall | None) -> dict[int, _SplicedTurn]:
        """The turns that are put in as tokens, by the index of their message."""
        turns: dict[int, _SplicedTurn] = {}
        for position in sorted(self._plan.exact):
            found = self._recalled(position, recall) or self._ordered(self._shown.messages[position])
            if found is not None and found.ids:
                turns[position] = found
        return turns

    def _recalled(self, position: int, recall: Recall | None) -> _SplicedTurn | None:
        if recall is None:
            return None
        message = self._messages[position]
        turn, said = recall.recall(message, self._history.before(position))
        self._notes.extend(said)
        if turn is None:
            return None
        thinking = self._begun_thinking(turn, message)
        if turn.complete:
            return _SplicedTurn(turn.ids, True, thinking)
        unsaid = self._shown.messages[position].blocks[turn.blocks :]
        rest = rewritten_on(self._splicer, self._traits, unsaid, self._shown.args, after_thought=True)
        if rest is None:
            return None
        return _SplicedTurn([*turn.ids, *self._encoded(rest)], False, thinking)

    def _ordered(self, message: Message) -> _SplicedTurn | None:
        """A turn nobody can recall: the template may render it, unless it would lose the order of its blocks."""
        if in_template_order(message.blocks):
            return None
        written = rewritten_in_order(self._splicer, self._traits, message.blocks, self._shown.args, self._plan.thinking)
        if written is None:
            self._notes.append(noted("replay.order_lost"))
            return None
        text, thinking = written
        return _SplicedTurn(self._encoded(text), False, thinking)

    def _encoded(self, rendered: str) -> list[int]:
        """The ids of what the template wrote from content."""
        text, literal = self._unmarked(rendered)
        tokenizer = self._builder.tokenizer
        return tokenizer.encode_literal(text, literal) if literal else tokenizer.encode(text)

    def _unmarked(self, rendered: str) -> tuple[str, Sequence[tuple[int, int]]]:
        """Rendered text without marks, and the spans in it that stay text."""
        if self._shown.marks is None:
            return rendered, ()
        text, literal = self._shown.marks.taken_out(rendered)
        if literal:
            self._notes.append(noted("prompt.control_text"))
        return text, literal

    def _begun_thinking(self, turn: RecalledTurn, message: Message) -> bool | None:
        """Whether the turn was written behind a header with thinking on."""
        on, off = self._traits.tail_on, self._traits.tail_off
        if off is None or on == off:
            return None
        if turn.tail is not None:
            # One header may end with the other one.
            ends_on, ends_off = turn.tail.endswith(on), turn.tail.endswith(off)
            if ends_on != ends_off:
                return ends_on
            return len(on) > len(off) if ends_on else None
        if self._traits.thought_close and self._traits.thought_close in turn.text:
            return True
        if any(isinstance(block, ReasoningBlock) for block in message.blocks):
            return True
        # Behind a header that opens a thought there would be one; behind any other its absence says nothing.
        return False if self._traits.thought_open else None

    # ------------------------------------------------------------------------------------------------- assembly

    def prompt(self, turns: Mapping[int, _SplicedTurn]) -> Prompt:
        begun = self._shown.begun
        ids: list[int] = []
        sections: list[Section] = []
        stops = [*sorted(turns), len(self._messages)]
        piece = self._head(stops[0], turns.get(stops[0]), begun)
        _append(ids, sections, piece)
        for position, end in pairwise(stops):
            turn = turns[position]
            sections.append(Section("turn" if turn.exact else "message", position, len(ids), len(ids) + len(turn.ids)))
            ids.extend(turn.ids)
            piece = self._bridge(position, end, turn, turns.get(end), begun)
            _append(ids, sections, piece)
        tail = piece.tail or ""
        if begun is not None:
            started = self._encoded(begun)
            sections.append(Section("message", len(self._messages), len(ids), len(ids) + len(started)))
            ids.extend(started)
            tail += self._unmarked(begun)[0]
        return Prompt(
            ids=ids,
            tail=tail,
            sections=tuple(sections),
            notes=tuple(dict.fromkeys(self._notes)),
            history=self._history.coming(),
            stamp=self._builder.template.stamp,
            foresight=self._foresight(tail) if begun is None else None,
        )

    def _foresight(self, tail: str) -> Foresight:
        builder = self._builder
        return Foresight(
            template=builder.template,
            traits=builder.traits,
            tokenizer=builder.tokenizer,
            control=builder.control,
            messages=self._messages,
            tools=self._tools,
            args=self._args(None, None),
            end_tokens=builder.end_tokens,
            tail=tail,
        )

    def _args(self, before: _SplicedTurn | None, begun: str | None) -> dict[str, Any]:
        """The template's switches for the text before a turn: those it was written with."""
        thinking = self._plan.thinking
        if before is not None and before.thinking is not None:
            thinking = before.thinking
        elif before is None and begun is not None and self._traits.thought_open:
            thinking = False  # what is continued is text, and the header must not open a thought before it
        if thinking == self._plan.thinking:
            return self._shown.args
        switch = self._traits.thinking_on if thinking else self._traits.thinking_off
        return {**self._shown.args, **(switch or {})}

    def _head(self, end: int, before: _SplicedTurn | None, begun: str | None) -> TokenizedText:
        args = self._args(before, begun)
        key = _digest(b"head", self._frame, _encode(sorted(args.items())), self._chain[end])
        last = before is None
        return self._piece(key, 0, end, last, lambda: self._splicer.head(end, args, tail=last))

    def _bridge(
        self, position: int, end: int, turn: _SplicedTurn, before: _SplicedTurn | None, begun: str | None
    ) -> TokenizedText:
        args = self._args(before, begun)
        ending = self._builder.tokenizer.decode(turn.ids[-_ENDING:])
        key = _digest(
            b"bridge",
            self._frame,
            _encode(sorted(args.items())),
            self._chain[position + 1],
            ending.encode("utf-8", "surrogatepass"),
            self._chain[end],
        )
        last = before is None
        return self._piece(
            key, position + 1, end, last, lambda: self._splicer.bridge(position, end, ending, args, tail=last)
        )

    def _piece(self, key: bytes, start: int, end: int, last: bool, write: Callable[[], Text]) -> TokenizedText:
        memory = self._builder.memory
        piece = memory.get(key)
        if piece is None or (last and piece.tail is None):
            before = len(self._notes)
            text = write()
            whole, literal = self._unmarked(text.whole)
            tools = self._tools if start == 0 else ()
            labels = labelled(whole, text.tail, self._messages, start, end, tools)
            said = tuple(self._notes[before:])
            piece = tokenized(self._builder.tokenizer, whole, labels, text.tail, said, literal)
            memory.put(key, piece)
        else:
            self._notes.extend(piece.notes)
        return piece


def _tells_thoughts(message: Message) -> bool:
    """Whether a thought may stand in the message's text: one of the assistant's without a thought beside it."""
    return message.role == "assistant" and not any(isinstance(block, ReasoningBlock) for block in message.blocks)


def _continued(begun: str, marks: Marks) -> str:
    """Text to be continued, marked. It may begin with a thought of its own, open or closed."""
    opener, closer = _THOUGHT_MARKS
    start = len(begun) - len(begun.lstrip())
    if not begun.startswith(opener, start):
        return marks.text(begun)
    start += len(opener)
    thought, close, answer = begun[start:].partition(closer)
    return begun[:start] + marks.text(thought) + close + marks.text(answer)


def _begun(messages: Sequence[Message]) -> str | None:
    """The text of a last assistant message that is to be continued."""
    if not messages or messages[-1].role != "assistant":
        return None
    if all(isinstance(block, TextBlock) for block in messages[-1].blocks):
        return messages[-1].text
    return None


def _append(ids: list[int], sections: list[Section], piece: TokenizedText) -> None:
    base = len(ids)
    sections.extend(Section(part.kind, part.index, base + part.start, base + part.end) for part in piece.sections)
    ids.extend(piece.ids)


def _without_thoughts(messages: Sequence[Message], bare: frozenset[int]) -> tuple[Message, ...]:
    return tuple(
        Message(role=message.role, blocks=tuple(b for b in message.blocks if not isinstance(b, ReasoningBlock)))
        if position in bare
        else message
        for position, message in enumerate(messages)
    )


def _without_carriers(message: Message) -> Message:
    """A message without the blank thoughts whose seals are all there is to them: the model did not write them there."""
    if message.role != "assistant":
        return message
    shown = tuple(b for b in message.blocks if not isinstance(b, ReasoningBlock) or b.text.strip())
    return message if len(shown) == len(message.blocks) else Message(role=message.role, blocks=shown)


def _chained(digests: Sequence[bytes]) -> list[bytes]:
    """For each number of messages, one digest of them all."""
    chain = [b""]
    for digest in digests:
        chain.append(_digest(chain[-1], digest))
    return chain


def _digest(*parts: bytes) -> bytes:
    hashed = blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(4, "little"))
        hashed.update(part)
    return hashed.digest()
