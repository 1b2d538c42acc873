"""From a conversation to prompt tokens.

Promise: `build` is a function of the conversation and of what can be recalled. The prompt of turn N+1 starts with the
prompt and the output of turn N, token for token, wherever the policy wants that turn exact and it can be recalled;
where not, a Note says so. What a prompt shares with an earlier one is neither rendered nor tokenized again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise

import msgspec

from turnwire.prompts.pieces import Label, Piece, PieceMemory, tokenized
from turnwire.prompts.policy import Plan, ReplayPolicy
from turnwire.prompts.probe import probe
from turnwire.prompts.prompt import Prompt, Recall, RecalledTurn, Section, Tokenizer
from turnwire.prompts.replay import Scribe, Text, UnknownSeam
from turnwire.prompts.stability import StabilityOptions, stabilise
from turnwire.prompts.template import Renderer, TemplateFailure
from turnwire.prompts.traits import TemplateTraits
from turnwire.turns import Conversation, Message, Note, ReasoningBlock

__all__ = ["PromptBuilder"]

_encode = msgspec.msgpack.Encoder().encode
_ENDING = 24  # tokens of an output that are looked at for an end-of-turn mark


class PromptBuilder:
    """Builds prompts for one model: its template and tokenizer, what probing showed of the template, the operator's
    replay policy and stability options. Several threads may use one."""

    def __init__(
        self,
        template: Renderer,
        tokenizer: Tokenizer,
        *,
        traits: TemplateTraits | None = None,
        policy: ReplayPolicy | None = None,
        stability: StabilityOptions | None = None,
        memory: PieceMemory | None = None,
    ) -> None:
        self.template = template
        self.tokenizer = tokenizer
        self.traits = traits if traits is not None else probe(template)
        self.policy = policy or ReplayPolicy()
        self.stability = stability or StabilityOptions()
        self._memory = memory or PieceMemory()

    def build(self, conversation: Conversation, recall: Recall | None = None) -> Prompt:
        """The prompt for the conversation's next assistant turn. A template that refuses the conversation raises
        TemplateFailure."""
        stable, notes = stabilise(
            conversation,
            self.stability,
            mid_system=self.traits.mid_system is not None,
            system=self.traits.system,
        )
        plan = self.policy.plan(stable, self.traits)
        notes.extend(plan.notes)
        messages = _without_thoughts(stable.messages, plan.bare)
        turns = self._recalled(messages, plan, recall, notes)
        draft = _Draft(self, stable, messages, plan, notes)
        try:
            return draft.prompt(turns)
        except (UnknownSeam, TemplateFailure) as error:
            if not turns:
                raise
            notes.append(Note("replay.not_spliced", f"earlier turns were rendered by the template: {error}"))
            return draft.prompt({})

    def _recalled(
        self, messages: Sequence[Message], plan: Plan, recall: Recall | None, notes: list[Note]
    ) -> dict[int, RecalledTurn]:
        if recall is None:
            return {}
        turns: dict[int, RecalledTurn] = {}
        for position in sorted(plan.exact):
            turn, said = recall.recall(messages[position])
            notes.extend(said)
            if turn is not None and turn.complete and turn.ids:
                turns[position] = turn
        return turns


class _Draft:
    """One prompt in the making."""

    def __init__(
        self,
        builder: PromptBuilder,
        conversation: Conversation,
        messages: Sequence[Message],
        plan: Plan,
        notes: list[Note],
    ) -> None:
        self._builder = builder
        self._messages = messages
        self._plan = plan
        self._notes = notes
        self._scribe = Scribe(builder.template, builder.traits, messages, conversation.tools, notes)
        self._digests = [_digest(_encode(message)) for message in messages]
        self._frame = _digest(_encode([conversation.tools, sorted(plan.args.items())]))
        self._chain = _chained(self._digests)

    def prompt(self, turns: Mapping[int, RecalledTurn]) -> Prompt:
        ids: list[int] = []
        sections: list[Section] = []
        stops = [*sorted(turns), len(self._messages)]
        piece = self._head(stops[0], last=len(stops) == 1)
        _append(ids, sections, piece)
        for turn, end in pairwise(stops):
            exact = turns[turn]
            sections.append(Section("turn", turn, len(ids), len(ids) + len(exact.ids)))
            ids.extend(exact.ids)
            piece = self._bridge(turn, end, exact, last=end == len(self._messages))
            _append(ids, sections, piece)
        return Prompt(ids=ids, tail=piece.tail or "", sections=tuple(sections), notes=tuple(self._notes))

    def _head(self, end: int, *, last: bool) -> Piece:
        key = _digest(b"head", self._frame, self._chain[end])
        return self._piece(key, 0, end, last, lambda: self._scribe.head(end, self._plan.args, tail=last))

    def _bridge(self, turn: int, end: int, exact: RecalledTurn, *, last: bool) -> Piece:
        ending = self._builder.tokenizer.decode(exact.ids[-_ENDING:])
        key = _digest(b"bridge", self._frame, self._chain[turn + 1], ending.encode(), self._chain[end])
        args = self._plan.args
        return self._piece(
            key, turn + 1, end, last, lambda: self._scribe.bridge(turn, end, ending, args, tail=last)
        )

    def _piece(self, key: bytes, start: int, end: int, last: bool, write: Callable[[], Text]) -> Piece:
        memory = self._builder._memory
        piece = memory.get(key)
        if piece is None or (last and piece.tail is None):
            text = write()
            labels = _labels(text, self._messages, start, end)
            piece = tokenized(self._builder.tokenizer, text.whole, labels, text.tail)
            memory.put(key, piece)
        return piece


def _append(ids: list[int], sections: list[Section], piece: Piece) -> None:
    base = len(ids)
    sections.extend(Section(part.kind, part.index, base + part.start, base + part.end) for part in piece.sections)
    ids.extend(piece.ids)


def _labels(text: Text, messages: Sequence[Message], start: int, end: int) -> list[Label]:
    """Where each message shows in the text, as far as its first words can be found there."""
    labels = [Label("frame", start, 0)]
    return labels


def _without_thoughts(messages: Sequence[Message], bare: frozenset[int]) -> tuple[Message, ...]:
    return tuple(
        Message(role=message.role, blocks=tuple(b for b in message.blocks if not isinstance(b, ReasoningBlock)))
        if position in bare
        else message
        for position, message in enumerate(messages)
    )


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
