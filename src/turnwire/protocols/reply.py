"""What a turn said, folded once from its events: for whole answers, stored conversations, summaries and checks.

Promise: blocks keep the order in which the model opened them; each holds its whole text or arguments. Constant work per
event. A block that was never closed is not part of the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from turnwire.turns import (
    Block,
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    HostedAnswered,
    HostedCalled,
    Message,
    ReasoningBlock,
    SealCarried,
    TextBlock,
    TokensScored,
    ToolCallBlock,
    ToolCallClosed,
    TurnReport,
    Usage,
)

__all__ = ["Reply", "ReplyBlock"]

Kind: TypeAlias = Literal["text", "reasoning", "tool_call", "seal", "hosted"]


class ReplyBlock(msgspec.Struct, frozen=True):
    """One finished block. `text` is its prose, its thought, or the argument text of a call; `seal` is a thought's
    carrier, or that of everything after the last thought (kind `seal`). `hosted` is a call that the gateway ran itself,
    or its answer."""

    kind: Kind
    text: str = ""
    seal: str = ""
    name: str = ""
    call_id: str = ""
    malformed: bool = False
    hosted: HostedCalled | HostedAnswered | None = None

    @property
    def blank(self) -> bool:
        """Whether the block shows nothing."""
        return not self.text or self.text.isspace()


class Reply:
    """Collects the events of one turn. `usage` and `finished` are the turn's last, once it is over; `report` is what
    the client asked to know."""

    def __init__(self) -> None:
        self.usage = Usage(0)
        self.finished: Finished | None = None
        self.scores: list[TokensScored] = []
        self.report: dict[str, object] | None = None
        self._open: dict[int, list[str]] = {}
        self._blocks: dict[int, ReplyBlock | None] = {}

    def feed(self, events: Sequence[Event]) -> None:
        """Take a batch of the turn's events."""
        for event in events:
            match event:
                case BlockDelta():
                    self._open[event.index].append(event.text)
                case BlockOpened():
                    self._open[event.index] = []
                    self._blocks[event.index] = None
                case BlockClosed():
                    text = "".join(self._open.pop(event.index))
                    self._blocks[event.index] = ReplyBlock(event.kind, text, event.seal)
                case ToolCallClosed():
                    self._open.pop(event.index, None)
                    self._blocks[event.index] = ReplyBlock(
                        "tool_call", event.arguments, "", event.name, event.call_id, event.malformed
                    )
                case HostedCalled() | HostedAnswered():
                    self._blocks[event.index] = ReplyBlock("hosted", hosted=event)
                case SealCarried():
                    self._blocks[event.index] = ReplyBlock("seal", "", event.seal)
                case TokensScored():
                    self.scores.append(event)
                case TurnReport():
                    self.report = event.fields
                case Usage():
                    self.usage = event
                case Finished():
                    self.finished = event

    @property
    def blocks(self) -> list[ReplyBlock]:
        """The finished blocks, in the model's order."""
        return [block for block in self._blocks.values() if block is not None]

    @property
    def calls(self) -> list[ReplyBlock]:
        """The finished calls, in the model's order."""
        return [block for block in self.blocks if block.kind == "tool_call"]

    def joined(self, kind: Kind, between: str = "") -> str:
        """The texts of all blocks of one kind that have any."""
        return between.join(block.text for block in self.blocks if block.kind == kind and block.text)

    def message(self) -> Message:
        """The reply as the message that a client would send back. Blank prose is left out: no client returns it."""
        return Message(
            role="assistant",
            blocks=tuple(
                said
                for block in self.blocks
                if (block.kind != "text" or not block.blank) and (said := _said(block)) is not None
            ),
        )


def _said(block: ReplyBlock) -> Block | None:
    match block.kind:
        case "hosted":
            return None
        case "text":
            return TextBlock(text=block.text)
        case "reasoning":
            return ReasoningBlock(text=block.text, seal=block.seal or None)
        case "seal":
            return ReasoningBlock(text="", seal=block.seal, redacted=True)
        case "tool_call":
            return ToolCallBlock(id=block.call_id, name=block.name, arguments=block.text or "{}")
