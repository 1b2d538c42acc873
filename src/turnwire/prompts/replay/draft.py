"""One prompt in the making: exact turns, and what the template writes around them.

Promise: what an earlier prompt of the same conversation already holds is taken from it; the outcome is that of putting
everything together anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from turnwire.prompts.message_cache import KnownConversation
from turnwire.prompts.notes import noted
from turnwire.prompts.policy import PromptPlan
from turnwire.prompts.prompt import BegunTurn, Prompt, Recall, RecalledTurn, Section
from turnwire.prompts.recall.history import History
from turnwire.prompts.replay.assembled import AssembledPrompt
from turnwire.prompts.replay.continuation import ContinuedText, continued
from turnwire.prompts.replay.foresight import Foresight
from turnwire.prompts.replay.growing_text import Rendering, common_items, grown
from turnwire.prompts.replay.rewriting import in_template_order, rewritten_in_order, rewritten_on
from turnwire.prompts.replay.splicer import TemplateSplicer, Text, UnknownTurnEnd
from turnwire.prompts.replay.tokenized_text import TokenizedText
from turnwire.prompts.templates.control_text import Marks
from turnwire.prompts.templates.template import TemplateFailure
from turnwire.token_ids import TokenIds
from turnwire.tool_sets import ToolSet
from turnwire.turns import Message, Note, ReasoningBlock, Tool, ToolCallBlock

if TYPE_CHECKING:
    from turnwire.prompts.builder import PromptBuilder

__all__ = ["Draft", "Shown"]

_encode = msgspec.msgpack.Encoder().encode
_LOOKED_BACK = 8  # turns before whose prompt is looked for; an edit seldom goes further back
_PER_MESSAGE = 8  # rendering a message that is known costs what tokenizing so many bytes does
_STANDING = 128  # comparing so many bytes that stand as they stood costs what tokenizing one does
_CONTROL_TEXT = noted("prompt.control_text")
_ENDING = 24  # tokens of an output that are looked at for an end-of-turn mark


class Shown(msgspec.Struct, frozen=True, gc=False):
    """A conversation as the template gets it: its messages, and those `written` without thoughts that are only
    carriers, with their `calls`. `marks` are None where none were needed."""

    messages: Sequence[Message]
    written: Sequence[Message]
    calls: Sequence[ToolCallBlock]
    tools: Sequence[Tool]
    args: dict[str, Any]
    begun: str | None
    marks: Marks | None


class _SplicedTurn(msgspec.Struct, frozen=True, gc=False):
    """A turn that is put in as tokens. `exact` tells what the model wrote from what was written for it; `thinking` is
    None where the header it was written after is not known."""

    ids: Sequence[int]
    exact: bool
    thinking: bool | None


class _Found(msgspec.Struct, gc=False):
    """The turns that are put in as tokens, by the index of their message; the assembled prompt that ends where the
    first of them begins, and its key. `settled`: all of them are what the model wrote, and nothing was noted."""

    turns: dict[int, _SplicedTurn]
    base: AssembledPrompt | None = None
    key: bytes | None = None
    settled: bool = True


class _HeadKeys(msgspec.Struct, frozen=True, gc=False):
    """Names of what a text depends on: all of it (`whole`), what all texts of its conversation have in common (its
    `opening`), and what conversations with the same first message, tools and switches have (their `beginning`). Each is
    made of digests."""

    whole: bytes
    opening: bytes
    beginning: bytes


class Draft:
    """The prompt of one conversation in its stable form. `offered` is what is known of its tools, `known` of its
    messages."""

    def __init__(
        self,
        builder: PromptBuilder,
        known: KnownConversation,
        offered: ToolSet,
        shown: Shown,
        plan: PromptPlan,
        notes: list[Note],
    ) -> None:
        self._builder = builder
        self._traits = builder.traits
        self._messages = known.messages
        self._each = known.each
        self._shown = shown
        self._tools = offered.tools
        self._plan = plan
        self._notes = notes
        self._splicer = TemplateSplicer(
            builder.template,
            builder.traits,
            shown.written,
            shown.tools,
            notes,
            builder.end_tokens,
            shown.calls,
            known.questions,
        )
        self._prefixes = known.prefixes
        self._digests = known.prefixes.digests
        self._history = History(known.messages, self._digests, known.said, offered)
        self._frame = offered.digest(builder.template.stamp.encode())
        self._scope: str | None = None
        self._found = _Found({}, settled=False)
        self._keys: tuple[tuple[int, _SplicedTurn | None], _HeadKeys] | None = None

    def look_up(self, recall: Recall | None) -> None:
        """Find the turns that are put in as tokens."""
        self._scope = getattr(recall, "scope", None)
        self._found = self._exact_turns(recall)

    def finish(self) -> Prompt:
        """The prompt; one that the template writes alone where it cannot be written around the turns that were
        found."""
        try:
            return self._prompt(self._found)
        except (UnknownTurnEnd, TemplateFailure) as error:
            if not self._found.turns:
                raise
            self._notes.append(noted("replay.not_spliced", error))
            return self._prompt(_Found({}, settled=False))

    @property
    def work(self) -> int:
        """How many bytes are yet to be rendered and tokenized, about; rendering alone counts for a few of them."""
        first, standing = min(self._found.turns, default=len(self._messages)), 0
        if self._found.base is not None:
            start, shown = first, len(self._messages) - first
            if not self._traits.turn_ends.local:
                shown = len(self._messages)
        else:
            keys, _ = self._head_keys(first, self._found.turns.get(first))
            kept = self._builder.renderings.get(keys.opening)
            if kept is not None and kept.key == keys.whole:
                start, shown = first, len(self._messages) - first
            else:
                edit = common_items(kept.text.digests, self._digests[:first]) if kept is not None else 0
                shown = len(self._messages) - (edit if self._traits.fixed_history else 0)
                start = kept.text.kept_before(self._builder.tokenizer, edit) if kept is not None else 0
                size = len(kept.text.digests) if kept is not None else 0
                if kept is not None and size <= first:
                    # What stands between two edits is tokenized again, and so is all of it where the end is gone.
                    same = common_items(kept.text.digests[:edit:-1], self._digests[size - 1 : edit : -1])
                    stands = kept.text.stands_from(self._builder.tokenizer, size - same)
                    standing = sum([each.size for each in self._each[stands:size]])
                    standing -= standing // _STANDING
        return sum([each.size for each in self._each[start:]]) - standing + _PER_MESSAGE * shown

    # ------------------------------------------------------------------------------------------ turns as tokens

    def _exact_turns(self, recall: Recall | None) -> _Found:
        """The turns that are put in as tokens. They are looked for from the last one backwards, as far as the prompt
        before them is not known."""
        scope = self._scope
        exact = sorted(self._plan.exact)
        found = _Found({}, settled=scope is not None)
        said: list[list[Note]] = []
        for place in range(len(exact) - 1, -1, -1):
            asked = scope is not None and place >= len(exact) - _LOOKED_BACK
            position, before = exact[place], len(self._notes)
            later = exact[place + 1] if place + 1 < len(exact) else None
            turn = self._recalled(position, recall, later) or self._ordered(self._shown.messages[position])
            said.append(self._notes[before:])
            del self._notes[before:]
            if turn is None or not turn.ids:
                found.settled = False
                continue
            found.turns[position] = turn
            found.settled = found.settled and turn.exact and not said[-1]
            if scope is not None and asked:
                key = self._assembled_key(scope, position, exact[:place], self._args(turn))
                found.base = self._builder.assembled.get(key)
                if found.base is not None:
                    found.key = key
                    break
        for notes in reversed(said):
            self._notes.extend(notes)
        return found

    def _assembled_key(self, scope: str, end: int, exact: Sequence[int], args: Mapping[str, Any]) -> bytes:
        """What a prompt that ends where the turn at `end` begins depends on."""
        return _digest(
            scope.encode("utf-8", "surrogatepass"),
            self._frame,
            _encode([sorted(self._shown.args.items()), sorted(args.items()), self._plan.thinking, exact]),
            self._prefixes.before(end),
        )

    def _recalled(self, position: int, recall: Recall | None, later: int | None) -> _SplicedTurn | None:
        if recall is None:
            return None
        message = self._messages[position]
        turn, said = recall.recall(message, self._history.before(position))
        if turn is not None and later is not None:
            # A writer that had no store of ours read this turn by what its message carries, and so must we.
            elsewhere = getattr(recall, "written_elsewhere", None)
            if elsewhere is not None and elsewhere(self._messages[later], self._history.before(later)):
                turn, said = recall.recall(message)
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
            self._notes.append(_CONTROL_TEXT)
        return text, literal

    def _begun_thinking(self, turn: RecalledTurn, message: Message) -> bool | None:
        """Whether the turn was written after a header with thinking on."""
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
        # After a header that opens a thought there would be one; after any other its absence says nothing.
        return False if self._traits.thought_open else None

    # ------------------------------------------------------------------------------------------------- assembly

    def _prompt(self, found: _Found) -> Prompt:
        """The prompt around the turns that were found; kept for the next one where all of them are settled."""
        turns, base, scope = found.turns, found.base, self._scope
        stops = [*sorted(turns), len(self._messages)]
        ids = base.ids if base is not None else TokenIds()
        sections = list(base.sections) if base is not None else []
        said = list(base.notes) if base is not None else []
        self._notes.extend(said)
        last: TokenizedText | None = None
        if base is None:
            last = self._head(stops[0], turns.get(stops[0]))
            ids = last.ids
            sections += last.sections
            said += last.notes
        fresh = array("I")
        for position, end in pairwise(stops):
            turn, at = turns[position], len(ids) + len(fresh)
            sections.append(Section("turn" if turn.exact else "message", position, at, at + len(turn.ids)))
            fresh.extend(turn.ids)
            last, at = self._bridge(position, end, turn, turns.get(end)), at + len(turn.ids)
            sections.extend(Section(part.kind, part.index, at + part.start, at + part.end) for part in last.sections)
            fresh.extend(last.ids.packed)
            said += last.notes
        if fresh:
            ids = ids.grown(len(ids), fresh)
        tail = (last.tail if last is not None else None) or ""
        if scope is not None and found.settled:
            key = self._assembled_key(scope, len(self._messages), sorted(self._plan.exact), self._args(None))
            kept = AssembledPrompt(ids, tuple(sections), tuple(said), found.key)
            self._builder.assembled.put(key, kept)
        begun: BegunTurn | None = None
        if self._shown.begun is not None:
            started = self._encoded(self._shown.begun)
            sections.append(Section("message", len(self._messages), len(ids), len(ids) + len(started)))
            ids = ids.grown(len(ids), started)
            words = self._unmarked(self._shown.begun)[0]
            tail += words
            if words and not words.lstrip().startswith((self._traits.thought_open or "<think>", "<think>")):
                begun = BegunTurn(words, started)
        return Prompt(
            ids=ids,
            tail=tail,
            sections=tuple(sections),
            notes=tuple(dict.fromkeys(self._notes)),
            history=self._history.coming(),
            stamp=self._builder.template.stamp,
            foresight=self._foresight(tail) if self._shown.begun is None else None,
            begun=begun,
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
            args=self._args(None),
            end_tokens=builder.end_tokens,
            tail=tail,
            plain=builder.plain_answers,
        )

    def _args(self, before: _SplicedTurn | None) -> dict[str, Any]:
        """The template's switches for the text before a turn: those it was written with."""
        thinking = self._plan.thinking
        if before is not None and before.thinking is not None:
            thinking = before.thinking
        elif before is None and self._shown.begun is not None and self._traits.thought_open:
            thinking = False  # what is continued is text, and the header must not open a thought before it
        if thinking == self._plan.thinking:
            return self._shown.args
        switch = self._traits.thinking_on if thinking else self._traits.thinking_off
        return {**self._shown.args, **(switch or {})}

    def _head_keys(self, end: int, before: _SplicedTurn | None) -> tuple[_HeadKeys, dict[str, Any]]:
        """What the text before the turn at `end` is known by, and the template's switches for it."""
        args = self._args(before)
        if self._keys is None or self._keys[0] != (end, before):
            frame = _digest(self._frame, _encode(sorted(args.items())))
            keys = _HeadKeys(
                b"head" + frame + self._prefixes.before(end),
                frame + self._prefixes.before(min(end, 2)),
                frame + self._prefixes.before(min(end, 1)),
            )
            self._keys = ((end, before), keys)
        return self._keys[1], args

    def _head(self, end: int, before: _SplicedTurn | None) -> TokenizedText:
        keys, args = self._head_keys(end, before)
        renderings = self._builder.renderings
        kept = renderings.get(keys.opening)
        if kept is not None and kept.key == keys.whole:
            self._notes.extend(kept.notes)
            return _as_tokenized(kept)
        piece = self._remembered(keys.whole)
        if piece is not None:
            return piece
        beside = renderings.beside(keys.beginning) if kept is None else None
        noted_before = len(self._notes)
        grows = self._continued(kept, end, args)
        if grows is not None:
            text, whole, literal = grows.text, grows.text.whole, grows.literal
        else:
            text = self._splicer.head(end, args)
            whole, literal = self._unmarked(text.whole)
        grown_text = grown(
            kept.text if kept is not None else None,
            self._builder.tokenizer,
            whole,
            text.tail,
            self._messages,
            self._digests,
            end=end,
            tools=self._tools,
            literal=literal,
            common=grows.common if grows is not None else 0,
            beside=beside.text if beside is not None else None,
        )
        # In the order in which a rendering of the whole text has them.
        notes = tuple(sorted(dict.fromkeys(self._notes[noted_before:]), key=lambda note: note == _CONTROL_TEXT))
        self._notes[noted_before:] = notes
        rendering = Rendering(keys.whole, grown_text, text.tail, notes, grows.shared if grows is not None else None)
        renderings.put(keys.opening, rendering, keys.beginning)
        piece = _as_tokenized(rendering)
        self._builder.memory.put(keys.whole, piece)
        return piece

    def _continued(self, kept: Rendering | None, end: int, args: Mapping[str, Any]) -> ContinuedText | None:
        """The text of a conversation that went on, where a part of it tells the whole."""
        if kept is None or not self._traits.fixed_history:
            return None
        before = len(self._notes)
        self._notes.extend(kept.notes)
        text = continued(
            self._splicer, kept.text, kept.window, self._messages, self._digests, end, args, self._unmarked
        )
        if text is None:
            del self._notes[before:]
        return text

    def _bridge(self, position: int, end: int, turn: _SplicedTurn, before: _SplicedTurn | None) -> TokenizedText:
        args = self._args(before)
        ending = self._builder.tokenizer.decode(turn.ids[-_ENDING:])
        key = _digest(
            b"bridge",
            self._frame,
            _encode([position, sorted(args.items())]),
            self._prefixes.before(end),
            ending.encode("utf-8", "surrogatepass"),
        )
        piece = self._remembered(key)
        if piece is not None:
            return piece
        noted_before = len(self._notes)
        text = self._splicer.bridge(position, end, ending, args)
        whole, literal = self._unmarked(text.whole)
        piece = self._tokenized(whole, text, position + 1, end, literal, tuple(self._notes[noted_before:]))
        self._builder.memory.put(key, piece)
        return piece

    def _remembered(self, key: bytes) -> TokenizedText | None:
        piece = self._builder.memory.get(key)
        if piece is not None:
            self._notes.extend(piece.notes)
        return piece

    def _tokenized(
        self,
        whole: str,
        text: Text,
        start: int,
        end: int,
        literal: Sequence[tuple[int, int]],
        notes: tuple[Note, ...],
    ) -> TokenizedText:
        found = grown(
            None,
            self._builder.tokenizer,
            whole,
            text.tail,
            self._messages,
            self._digests,
            start=start,
            end=end,
            literal=literal,
        )
        return TokenizedText(ids=found.ids, sections=found.sections, tail=text.tail, notes=notes)


def _as_tokenized(rendering: Rendering) -> TokenizedText:
    text = rendering.text
    return TokenizedText(ids=text.ids, sections=text.sections, tail=rendering.tail, notes=rendering.notes)


def _digest(*parts: bytes) -> bytes:
    return blake2b(_encode(parts), digest_size=16).digest()
