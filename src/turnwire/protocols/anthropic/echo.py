"""What an answer must repeat or honour of the request it answers.

Promise: plain data, filled by decode, read by the encoders and the gateway.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnwire.turns import JSON, Message

__all__ = ["Echo", "ThreadLink"]


class ThreadLink(msgspec.Struct, frozen=True, kw_only=True):
    """The request's `thread`: start a stored conversation, or go on after `previous_message_id`."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """`thinking` is whether thoughts are in play for this request; `omit_thinking` that the client wants only their
    signatures. `edits` are the requested context edits, `applied_edits` those that changed the conversation (None: the
    request had no context_management). `history` holds the messages before the edits, where a thread keeps them.
    `diagnostics` is whether the answer has a field of that name."""

    thinking: bool = False
    omit_thinking: bool = False
    edits: tuple[dict[str, JSON], ...] = ()
    applied_edits: tuple[dict[str, JSON], ...] | None = None
    thread: ThreadLink | None = None
    history: tuple[Message, ...] | None = None
    diagnostics: bool = False
