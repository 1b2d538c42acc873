"""What a captured output is parsed into.

Promise: the same parser as the gateway's; a call's arguments are values where they are JSON, else their text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.capture.format import CapturedTurn, DoneStep, EventStep, ParsedBlock, TokenStep
from turnwire.parsers import Dialect, Parser, start_state
from turnwire.protocols.reply import Reply
from turnwire.turns import Tool
from turnwire.unreadable import UNREADABLE

__all__ = ["blocks_of", "parsed_turn"]


def blocks_of(reply: Reply | None) -> tuple[ParsedBlock, ...]:
    """The blocks of a reply, without carriers of seals."""
    made: list[ParsedBlock] = []
    for block in reply.blocks if reply is not None else ():
        if block.kind == "tool_call":
            try:
                arguments = msgspec.json.decode(block.text or "{}")
            except UNREADABLE:
                arguments = block.text
            made.append(ParsedBlock(kind="tool_call", name=block.name, arguments=arguments))
        elif block.kind == "text" or block.kind == "reasoning":
            made.append(ParsedBlock(kind=block.kind, text=block.text))
    return tuple(made)


def parsed_turn(turn: CapturedTurn, dialect: Dialect, tools: Sequence[Tool]) -> tuple[ParsedBlock, ...]:
    """The blocks of a captured turn's output; one that was cut has those that were whole."""
    reply = Reply()
    parser = Parser(dialect, tools, start_state(turn.prompt.tail, dialect))
    written = False
    for step in turn.steps:
        if isinstance(step, TokenStep):
            written = True
            reply.feed(parser.feed(step.text))
        elif isinstance(step, EventStep):
            reply.feed(step.events)
    if written:
        ends = [step.reason for step in turn.steps if isinstance(step, DoneStep)]
        reply.feed(parser.finish(ends[0] if ends else "abort"))
    return blocks_of(reply)
